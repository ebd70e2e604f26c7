//! The command line from outside: exit codes, help, what is said about mistakes, and the operator's commands against a
//! running fleet.

mod configuration;
mod help;
mod parse;
mod program;
mod unreachable;
