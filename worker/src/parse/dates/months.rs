//! The names of months, in the languages of feeds.

/// The beginnings of the months' names in the languages of most feeds that localise them.
const MONTHS: [&[&str]; 12] = [
    &["jan", "ene", "gen", "janv", "sty", "led", "янв", "ιαν", "oca", "1月"],
    &["feb", "fev", "fév", "lut", "úno", "фев", "φεβ", "şub", "2月"],
    &["mar", "mär", "mrz", "maa", "bře", "мар", "μάρ", "μαρ", "már", "3月"],
    &["apr", "abr", "avr", "kwi", "dub", "апр", "απρ", "ápr", "nis", "4月"],
    &["may", "mai", "mei", "maj", "mag", "kvě", "мая", "май", "μάι", "μαι", "máj", "5月"],
    &["jun", "juin", "giu", "cze", "čvn", "июн", "ιού", "ιουν", "jún", "haz", "6月"],
    &["jul", "juil", "lug", "lip", "čvc", "июл", "ιούλ", "ιουλ", "júl", "tem", "7月"],
    &["aug", "ago", "aoû", "aou", "sie", "srp", "авг", "αύγ", "αυγ", "ağu", "8月"],
    &["sep", "set", "wrz", "zář", "сен", "σεπ", "sze", "eyl", "9月"],
    &["oct", "okt", "ott", "out", "paź", "říj", "окт", "οκτ", "eki", "10月"],
    &["nov", "lis", "ноя", "νοέ", "νοε", "kas", "11月"],
    &["dec", "dez", "dic", "déc", "gru", "pro", "дек", "δεκ", "ara", "12月"],
];

/// English first: nearly all dates are, and no other language means another month by these letters.
const ENGLISH: [&str; 12] = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];

/// Returns the number of the month that a word begins like.
pub(super) fn month(word: &str) -> Option<u32> {
    let of_english = |begin: &str| ENGLISH.iter().position(|name| name.eq_ignore_ascii_case(begin));
    if let Some(at) = word.get(..3).and_then(of_english) {
        return u32::try_from(at + 1).ok();
    }
    let word = word.to_lowercase();
    let mut best: Option<(usize, usize)> = None;
    for (at, names) in MONTHS.iter().enumerate() {
        for name in names.iter().filter(|name| word.starts_with(**name)) {
            if best.is_none_or(|(length, _)| name.len() > length) {
                best = Some((name.len(), at));
            }
        }
    }
    best.and_then(|(_, at)| u32::try_from(at + 1).ok())
}
