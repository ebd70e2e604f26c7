//! Deadlines, limits, addresses.
