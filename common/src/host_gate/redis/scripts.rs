//! The gate's scripts.

use ::redis::Script;

/// All of them.
pub(super) struct Scripts {
    pub(super) reserve: Script,
    pub(super) acquire_extra: Script,
    pub(super) cancel: Script,
    pub(super) hold: Script,
    pub(super) block: Script,
    pub(super) show_rules: Script,
    pub(super) shown_rules: Script,
    pub(super) held: Script,
    pub(super) begin_loading: Script,
    pub(super) open: Script,
    pub(super) open_new: Script,
    pub(super) mark: Script,
}

/// A script after the functions that it uses.
macro_rules! script {
    ($($file:literal),+) => {
        Script::new(concat!($(include_str!($file)),+))
    };
}

impl Scripts {
    pub(super) fn new() -> Self {
        Scripts {
            reserve: script!("host.lua", "reserve.lua"),
            acquire_extra: script!("host.lua", "acquire_extra.lua"),
            cancel: script!("host.lua", "cancel.lua"),
            hold: script!("host.lua", "hold.lua"),
            block: script!("host.lua", "block.lua"),
            show_rules: script!("show_rules.lua"),
            shown_rules: script!("shown_rules.lua"),
            held: script!("host.lua", "held.lua"),
            begin_loading: script!("host.lua", "begin_loading.lua"),
            open: script!("host.lua", "open.lua"),
            open_new: script!("host.lua", "open_new.lua"),
            mark: script!("mark.lua"),
        }
    }
}

/// Returns the script that starts and releases several requests. Each step is a function of where its keys and arguments begin.
pub(super) fn batch() -> Script {
    Script::new(concat!(
        include_str!("host.lua"),
        include_str!("feed.lua"),
        "local function acquire(key, arg)\n",
        include_str!("acquire.lua"),
        "end\nlocal function release(key, arg, has_feed)\n",
        include_str!("release.lua"),
        "end\n",
        include_str!("batch.lua"),
    ))
}
