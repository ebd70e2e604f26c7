//! `feedfleet migrate`: brings the store's schema up to date.
