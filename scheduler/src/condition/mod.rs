//! The condition of the fleet: what its loops measure and take into account, beside the feeds themselves.

pub mod load;
pub mod our_fault;
pub mod pace;
pub mod price;
pub mod storing;
pub mod trouble;
pub mod worst;
