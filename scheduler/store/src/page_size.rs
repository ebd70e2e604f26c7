//! How much a page of entries or events may hold: publishers choose the size of entries, and a reader's page must not.

use std::collections::HashMap;

/// Bytes of text after which a page ends, with the item that reaches them at the latest.
pub const PAGE_BYTES: i64 = 8 << 20;
/// What an item counts beside its texts.
const ITEM: i64 = 256;

/// Returns how many items of these sizes, in order, a page takes: one at least, further ones while they fit.
pub(crate) fn fitting(sizes: impl IntoIterator<Item = i64>) -> usize {
    let mut bytes = 0_i64;
    let fits = |(place, size): (usize, i64)| {
        bytes = bytes.saturating_add(size).saturating_add(ITEM);
        place == 0 || bytes <= PAGE_BYTES
    };
    sizes.into_iter().enumerate().map(fits).take_while(|fits| *fits).count()
}

/// Leaves as many events as a page takes, each of which holds a copy of its entry; returns whether some were left out.
pub(crate) fn cut_events<Row>(rows: &mut Vec<Row>, sizes: Vec<(i64, i64)>, entry: fn(&Row) -> Option<i64>) -> bool {
    let sizes: HashMap<i64, i64> = sizes.into_iter().collect();
    let size = |row: &Row| entry(row).and_then(|seq| sizes.get(&seq).copied()).unwrap_or(0);
    let fitting = fitting(rows.iter().map(size));
    let cut = fitting < rows.len();
    rows.truncate(fitting);
    cut
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
