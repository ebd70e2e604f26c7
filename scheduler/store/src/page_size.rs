//! How much a page of feeds, entries or events may hold: publishers choose the size of each, and a reader's page must not.

/// Bytes of text after which a page ends, with the item that reaches them at the latest.
pub const PAGE_BYTES: i64 = 8 << 20;
/// What an item counts beside its texts.
const ITEM: i64 = 256;

/// Returns how many items of these sizes, in order, a page takes: one at least, further ones while they fit.
pub fn fitting(sizes: impl IntoIterator<Item = i64>) -> usize {
    let mut bytes = 0_i64;
    let fits = |(place, size): (usize, i64)| {
        bytes = bytes.saturating_add(size).saturating_add(ITEM);
        place == 0 || bytes <= PAGE_BYTES
    };
    sizes.into_iter().enumerate().map(fits).take_while(|fits| *fits).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_one_item_at_least_and_never_more_than_its_bytes() {
        assert_eq!(fitting([]), 0);
        assert_eq!(fitting([i64::MAX, 1]), 1);
        assert_eq!(fitting([PAGE_BYTES / 4; 9]), 3);
        assert_eq!(fitting([0; 9]), 9);
    }
}
