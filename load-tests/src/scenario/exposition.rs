//! Prometheus' text format.

/// Returns the values of a metric's series.
pub(super) fn series<'a>(text: &'a str, name: &'a str) -> impl Iterator<Item = f64> + 'a {
    text.lines().filter_map(move |line| {
        let rest = line.strip_prefix(name)?;
        rest.starts_with([' ', '{']).then(|| rest.rsplit(' ').next()?.parse().ok())?
    })
}
