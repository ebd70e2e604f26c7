//! P13, P30, P36, P37: redirects.
