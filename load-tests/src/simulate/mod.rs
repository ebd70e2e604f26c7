//! Simulates the policy in virtual time, on posting histories.
//!
//! [`sample()`] takes feeds from [`histories`] as the reference simulation does, number by number. A [`Simulated`]
//! policy polls each of them, with no more information than a poller has; [`Figures`] say how long subscribers waited.
//! Our policies use `common::policy::decide`, the function that decides in production.
//!
//! There is no schedule, no host and no capacity: each feed is independent, and only the number of polls counts.

mod compare;
mod crowd;
mod decided;
mod figures;
pub mod histories;
mod lives;
mod oracle;
mod own;
mod plot;
mod published;
mod random;
mod sample;
mod table;
mod trial;
mod watched;

pub use compare::Simulated;
pub use crowd::{Crowd, Measured};
pub use figures::Figures;
pub use own::{OfCategory, OfHost, Own};
pub use plot::{Line, chart, svg};
pub use random::Random;
pub use sample::{ITEMS_SHOWN, Recipe, SampledFeed, sample};
pub use table::{Comparison, Goals, Row};
pub use watched::Watched;
