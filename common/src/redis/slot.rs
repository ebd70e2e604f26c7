//! The hash slots of a Redis Cluster, and tags that spread the parts of something evenly over them.

/// The number of slots of every cluster.
pub(super) const SLOTS: u16 = 16_384;

/// A hash slot: all keys with one tag are in it, and so at one master.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(pub(super) u16);

/// A part of what is kept: its keys begin with its tag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The tag, in braces.
    pub tag: String,
    /// Where it is in a cluster.
    pub slot: Slot,
}

impl Slot {
    /// Returns its number.
    pub fn number(self) -> u16 {
        self.0
    }

    /// Returns the slot of keys with this tag, which is given without its braces.
    fn of_tag(tag: &str) -> Self {
        let crc = tag.bytes().fold(0_u16, |crc, byte| {
            (0..8).fold(crc ^ (u16::from(byte) << 8), |crc, _| (crc << 1) ^ if crc & 0x8000 == 0 { 0 } else { 0x1021 })
        });
        Slot(crc % SLOTS)
    }
}

impl Part {
    fn new(tag: &str) -> Self {
        Part { tag: format!("{{{tag}}}"), slot: Slot::of_tag(tag) }
    }

    /// Returns the part whose tag is the namespace alone.
    pub(super) fn whole(namespace: &str) -> Self {
        Part::new(namespace)
    }

    /// Returns one of several parts, wherever its slot is.
    pub(super) fn anywhere(namespace: &str, number: usize, count: usize) -> Self {
        Part::new(&format!("{namespace}:{number}/{count}"))
    }

    /// Returns one of several parts, each of which is in its own share of the slots: the masters of a cluster have adjacent slots,
    /// and so equal numbers of parts. The first number that leads there is added to the tag.
    pub(super) fn spread(namespace: &str, number: usize, count: usize) -> Self {
        let is_in_its_share = |part: &Part| usize::from(part.slot.0) * count / usize::from(SLOTS) == number;
        let plain = Part::anywhere(namespace, number, count);
        let numbered = |salt| Part::new(&format!("{namespace}:{number}/{count}.{salt}"));
        let mut candidates = std::iter::once(plain.clone()).chain((1..64 * count).map(numbered));
        candidates.find(is_in_its_share).unwrap_or(plain)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_redis() {
        // CLUSTER KEYSLOT says so.
        for (tag, slot) in [("123456789", 12_739), ("foo", 12_182), ("user1000", 3_443), ("", 0)] {
            assert_eq!(Slot::of_tag(tag), Slot(slot), "{tag}");
        }
    }

    #[test]
    fn parts_are_spread_evenly_over_any_number_of_masters() {
        for count in [1, 3, 16, 64, 256] {
            let parts: Vec<Part> = (0..count).map(|number| Part::spread("feedfleet", number, count)).collect();
            for masters in 1..=count.min(12) {
                let share = usize::from(SLOTS).div_ceil(masters);
                let mut at = vec![0; masters];
                for part in &parts {
                    at[usize::from(part.slot.0) / share] += 1;
                }
                // A share of the slots may cross the border between two masters.
                let even = (count / masters).saturating_sub(1)..=count.div_ceil(masters) + 1;
                assert!(at.iter().all(|parts| even.contains(parts)), "{count} parts over {masters}: {at:?}");
            }
        }
    }

    #[test]
    fn a_part_keeps_its_plain_tag_where_there_are_no_slots() {
        assert_eq!(Part::anywhere("f", 2, 16).tag, "{f:2/16}");
        assert!(Part::spread("f", 2, 16).tag.starts_with("{f:2/16"));
        assert_eq!(Part::whole("f").tag, "{f}");
    }
}
