//! How many feeds there are of a kind, as the store keeps count: the migrations' triggers write the counters.

use common::outcome::FailureKind;
use common::policy::{Category, Status};

/// How many feeds there are, by the counters.
#[derive(Clone, Debug, Default)]
pub(super) struct Counts {
    /// By category and status.
    pub(super) classes: Vec<(Category, Status, u64)>,
    /// That failed at their last poll.
    pub(super) failing: Vec<(FailureKind, u64)>,
    /// In the penalty box.
    pub(super) penalised: Vec<(FailureKind, u64)>,
    /// Active ones of which no entry can be missing.
    complete: u64,
    /// Active ones that are silent.
    pub(super) silent: u64,
}

impl Counts {
    /// Returns the counters' rows: kind, name, feeds. Empty ones, and unknown names, are left out.
    pub(super) fn read(rows: Vec<(String, String, i64)>) -> Self {
        let mut counts = Counts::default();
        for (kind, name, feeds) in rows {
            let Some(feeds) = u64::try_from(feeds).ok().filter(|feeds| *feeds > 0) else { continue };
            let failure = FailureKind::from_name(&name);
            match kind.as_str() {
                "class" => counts.classes.extend(class(&name).map(|(category, status)| (category, status, feeds))),
                "failure" => counts.failing.extend(failure.map(|failure| (failure, feeds))),
                "penalty" => counts.penalised.extend(failure.map(|failure| (failure, feeds))),
                "standing" if name == "complete" => counts.complete = feeds,
                "standing" if name == "silent" => counts.silent = feeds,
                _ => {}
            }
        }
        counts.classes.sort_by_key(|(category, status, _)| (category.as_str(), status.as_str()));
        counts.failing.sort_by_key(|(failure, _)| failure.as_str());
        counts.penalised.sort_by_key(|(failure, _)| failure.as_str());
        counts
    }

    /// Active feeds that were not read yet, or of which entries may be missing.
    pub(super) fn incomplete(&self) -> u64 {
        self.of_classes(|_, status| status == Status::Active).saturating_sub(self.complete)
    }

    /// Returns feeds of these categories and statuses.
    pub(super) fn of_classes(&self, wanted: impl Fn(Category, Status) -> bool) -> u64 {
        self.classes.iter().filter(|(category, status, _)| wanted(*category, *status)).map(|(.., feeds)| feeds).sum()
    }

    /// Returns feeds that failed in this way.
    pub(super) fn of_failure(&self, wanted: FailureKind) -> u64 {
        self.failing.iter().filter(|(failure, _)| *failure == wanted).map(|(_, feeds)| feeds).sum()
    }

    /// Returns feeds that failed in any way.
    pub(super) fn of_failures(&self) -> u64 {
        self.failing.iter().map(|(_, feeds)| feeds).sum()
    }

    /// Returns feeds in the penalty box because of this failure, or of any.
    pub(super) fn of_penalty(&self, wanted: Option<FailureKind>) -> u64 {
        let fits = |kind: FailureKind| wanted.is_none_or(|wanted| wanted == kind);
        self.penalised.iter().filter(|(kind, _)| fits(*kind)).map(|(_, feeds)| feeds).sum()
    }
}

fn class(name: &str) -> Option<(Category, Status)> {
    let (category, status) = name.split_once(' ')?;
    Some((Category::from_name(category)?, status.parse().ok()?))
}
