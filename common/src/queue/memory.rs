//! The embedded queue.
