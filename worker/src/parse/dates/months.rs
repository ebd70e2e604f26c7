//! The names of months, in the languages of feeds.

/// The beginnings of the months' names in the languages of most feeds that localise them.
const MONTHS: [&[&str]; 12] = [
    &["jan", "ene", "gen", "janv", "sty", "led", "tammi", "янв", "ιαν", "oca", "1月"],
    &["feb", "fev", "fév", "lut", "úno", "helmi", "фев", "φεβ", "şub", "2月"],
    &["mar", "mär", "mrz", "mrt", "maa", "bře", "мар", "μάρ", "μαρ", "már", "3月"],
    &["apr", "abr", "avr", "kwi", "dub", "huhti", "апр", "απρ", "ápr", "nis", "4月"],
    &["may", "mai", "mei", "maj", "mag", "kvě", "touko", "мая", "май", "μάι", "μαι", "máj", "5月"],
    &["jun", "juin", "giu", "cze", "čvn", "kesä", "июн", "ιού", "ιουν", "jún", "haz", "6月"],
    &["jul", "juil", "lug", "lip", "čvc", "heinä", "июл", "ιούλ", "ιουλ", "júl", "tem", "7月"],
    &["aug", "ago", "aoû", "aou", "sie", "srp", "elo", "авг", "αύγ", "αυγ", "ağu", "8月"],
    &["sep", "set", "wrz", "zář", "syys", "сен", "σεπ", "sze", "eyl", "9月"],
    &["oct", "okt", "ott", "out", "paź", "říj", "loka", "окт", "οκτ", "eki", "10月"],
    &["nov", "lis", "marras", "ноя", "νοέ", "νοε", "kas", "11月"],
    &["dec", "dez", "dic", "des", "joulu", "déc", "gru", "pro", "дек", "δεκ", "ara", "12月"],
];

/// English before the other short ones: nearly all dates are, and no other language means another month by these letters alone.
const ENGLISH: [&str; 12] = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];

/// Returns the number of the month that a word begins like.
pub(super) fn month(word: &str) -> Option<u32> {
    let lower = word.to_lowercase();
    let longest = |least: usize| {
        let names =
            MONTHS.iter().enumerate().flat_map(|(at, names)| names.iter().map(move |name| (name.len(), at, name)));
        let fitting = names.filter(|(length, _, name)| *length >= least && lower.starts_with(**name));
        fitting.max_by_key(|(length, ..)| *length).map(|(_, at, _)| at)
    };
    let english = || ENGLISH.iter().position(|name| lower.starts_with(name));
    let at = longest(ENGLISH[0].len() + 1).or_else(english).or_else(|| longest(0))?;
    u32::try_from(at + 1).ok()
}
