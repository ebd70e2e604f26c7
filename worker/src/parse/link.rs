//! A link, as a document's reader hands it on.

use std::borrow::Cow;
use std::rc::Rc;

use url::Url;

/// A link as written, and the base in force at its place, where that is another than the document's own URL.
#[derive(Clone, Debug, Default)]
pub(super) struct Link<'a> {
    pub(super) href: Cow<'a, str>,
    pub(super) base: Option<Rc<Url>>,
}
