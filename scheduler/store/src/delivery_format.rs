//! How events are written for subscribers.

use common::named;

named! {
    /// How the events of a request are written.
    DeliveryFormat {
        /// As the API shows them.
        Feedfleet = "feedfleet",
        /// Entries as a JSON Feed.
        JsonFeed = "jsonfeed",
        /// Entries as an Atom feed.
        Atom = "atom",
    }
}

impl DeliveryFormat {
    /// Returns whether only events of entries can be written.
    pub fn has_entries_only(self) -> bool {
        matches!(self, DeliveryFormat::JsonFeed | DeliveryFormat::Atom)
    }
}
