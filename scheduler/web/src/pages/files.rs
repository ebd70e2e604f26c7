//! The pages' style, script and icon: compiled in, named by their content.

/// A file of the pages.
pub(super) struct Asset {
    pub(super) name: &'static str,
    pub(super) media_type: &'static str,
    pub(super) text: &'static str,
    hash: u64,
}

impl Asset {
    const fn new(name: &'static str, media_type: &'static str, text: &'static str) -> Self {
        Asset { name, media_type, text, hash: hash(text.as_bytes()) }
    }

    /// Where it is, from `/`: another content has another address.
    pub(super) fn path(&self) -> String {
        format!("assets/{}?v={:016x}", self.name, self.hash)
    }
}

pub(super) const CSS: Asset = Asset::new("pages.css", "text/css; charset=utf-8", include_str!("pages.css"));
pub(super) const JS: Asset = Asset::new("pages.js", "text/javascript; charset=utf-8", include_str!("pages.js"));
pub(super) const ICON: Asset = Asset::new("icon.svg", "image/svg+xml", include_str!("icon.svg"));

/// FNV-1a: distinguishes versions of our own files, at compile time.
const fn hash(bytes: &[u8]) -> u64 {
    let (mut hash, mut at) = (0xcbf2_9ce4_8422_2325_u64, 0);
    while at < bytes.len() {
        hash = (hash ^ bytes[at] as u64).wrapping_mul(0x0100_0000_01b3);
        at += 1;
    }
    hash
}
