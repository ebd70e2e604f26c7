//! The worker: fetches politely, reads what came, reports honestly.
//!
//! It holds no SQL, no schedule and no credentials of either; the code that touches hostile bytes lives here.

pub mod address;
pub mod decode;
pub mod headers;
pub mod parse;
pub mod redirect;
pub mod request;
