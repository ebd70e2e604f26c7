//! The embedded schedule.
