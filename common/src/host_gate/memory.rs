//! The embedded gate.
