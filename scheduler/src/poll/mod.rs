//! One poll: a due feed becomes a job ([`dispatch`]), its report becomes a stored state ([`results`]).

pub(crate) mod archive;
pub(crate) mod archive_pages;
mod batch;
pub mod dispatch;
mod gathered;
pub mod intake;
mod late;
#[cfg(test)]
mod life_tests;
mod log;
pub mod moves;
mod new_rules;
mod open_minutes;
mod pushed;
pub(crate) mod refusals;
pub mod results;
pub(crate) mod retire;
mod settling;
pub mod subject;
