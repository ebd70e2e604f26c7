//! Attacks, and what must be left of them: for the tests of the sanitiser, and for libFuzzer (`worker/fuzz`), which takes this
//! file as its own.

use ammonia::Url;
use common::entry::LINK_SCHEMES;
use common::html::{Tree, TreeLimits};

/// What the tree of one sanitised text may cost.
const LIMITS: TreeLimits = TreeLimits { max_nodes: 60_000, max_depth: 600, max_bytes: 12_000_000, deadline: None };

/// Spellings that were found in the wild or in lists for testing filters; each has run somewhere.
pub(crate) const ATTACKS: &[&str] = &[
    "<script>alert(1)</script>",
    "<SCRIPT SRC=//evil.example/x.js></SCRIPT>",
    "<scr<script>ipt>alert(1)</scr</script>ipt>",
    "<script\u{0}>alert(1)</script>",
    "<script/x>alert(1)</script >",
    "<<script>alert(1);//<</script>",
    "<img src=x onerror=alert(1)>",
    "<img src=x onerror\n=\nalert(1)>",
    "<img/src='x'/onerror=alert(1)>",
    "<img src=`x`onerror=alert(1)>",
    "<IMG \"\"\"><SCRIPT>alert(1)</SCRIPT>\">",
    "<body onload=alert(1)>",
    "<svg onload=alert(1)>",
    "<svg/onload=alert(1)//",
    "<svg><script>alert(1)</script></svg>",
    "<svg><script xlink:href=data:,alert(1) />",
    "<svg><a xlink:href='javascript:alert(1)'><text>x</text></a></svg>",
    "<svg><animate onbegin=alert(1) attributeName=x></svg>",
    "<svg><set attributeName=href to=javascript:alert(1)></svg>",
    "<svg><style><img src=x onerror=alert(1)></style></svg>",
    "<svg></p><style><a id=\"</style><img src=1 onerror=alert(1)>\">",
    "<math><mtext><table><mglyph><style><img src=x onerror=alert(1)></style></mglyph></table></mtext></math>",
    "<math><mi//xlink:href='data:x,<script>alert(1)</script>'>",
    "<math href='javascript:alert(1)'>x</math>",
    "<form><math><mtext></form><form><mglyph><style></math><img src onerror=alert(1)>",
    "<noscript><p title=\"</noscript><img src=x onerror=alert(1)>\">",
    "<textarea><p title=\"</textarea><img src=x onerror=alert(1)>\">",
    "<title><p title=\"</title><img src=x onerror=alert(1)>\">",
    "<xmp><p title=\"</xmp><img src=x onerror=alert(1)>\">",
    "<noembed><p title=\"</noembed><img src=x onerror=alert(1)>\">",
    "<iframe src=javascript:alert(1)></iframe>",
    "<iframe srcdoc='<script>alert(1)</script>'></iframe>",
    "<frameset><frame src=javascript:alert(1)></frameset>",
    "<object data=javascript:alert(1)></object>",
    "<embed src=javascript:alert(1)>",
    "<applet code=x></applet>",
    "<base href=javascript:alert(1)//>",
    "<meta http-equiv=refresh content='0;url=javascript:alert(1)'>",
    "<link rel=stylesheet href=//evil.example/x.css>",
    "<style>@import '//evil.example/x.css';</style>",
    "<p style='background:url(javascript:alert(1))'>x</p>",
    "<p style=\"width:expression(alert(1))\">x</p>",
    "<div style='position:fixed;inset:0'>over everything</div>",
    "<a href=javascript:alert(1)>x</a>",
    "<a href=JaVaScRiPt:alert(1)>x</a>",
    "<a href='jav\tascript:alert(1)'>x</a>",
    "<a href='jav&#x0A;ascript:alert(1)'>x</a>",
    "<a href='&#106;&#97;&#118;&#97;&#115;&#99;&#114;&#105;&#112;&#116;&#58;alert(1)'>x</a>",
    "<a href='&#0000106avascript:alert(1)'>x</a>",
    "<a href='javascript&colon;alert(1)'>x</a>",
    "<a href=' \u{1}javascript:alert(1)'>x</a>",
    "<a href='java\u{0}script:alert(1)'>x</a>",
    "<a href='vbscript:msgbox(1)'>x</a>",
    "<a href='data:text/html,<script>alert(1)</script>'>x</a>",
    "<a href='data:text/html;base64,PHNjcmlwdD5hbGVydCgxKTwvc2NyaXB0Pg=='>x</a>",
    "<a href='blob:https://a.example/1'>x</a>",
    "<a href='feed:javascript:alert(1)'>x</a>",
    "<a href='view-source:javascript:alert(1)'>x</a>",
    "<blockquote cite=javascript:alert(1)>x</blockquote>",
    "<q cite='feed:javascript:alert(1)'>x</q>",
    "<del cite=javascript:alert(1)>x</del><ins cite=vbscript:x>y</ins>",
    "<img longdesc=javascript:alert(1)>",
    "<img src=javascript:alert(1)>",
    "<img src='data:image/svg+xml,<svg onload=alert(1)>'>",
    "<img dynsrc=javascript:alert(1) lowsrc=javascript:alert(1)>",
    "<img srcset='javascript:alert(1) 1x'>",
    "<input type=image src=javascript:alert(1)>",
    "<button formaction=javascript:alert(1)>x</button>",
    "<form action=javascript:alert(1)><input type=submit></form>",
    "<isindex action=javascript:alert(1)>",
    "<video poster=javascript:alert(1) onerror=alert(1)><source onerror=alert(1) src=javascript:alert(1)></video>",
    "<audio src=javascript:alert(1) onloadstart=alert(1)></audio>",
    "<details open ontoggle=alert(1)>x</details>",
    "<select autofocus onfocus=alert(1)>",
    "<marquee onstart=alert(1)>x</marquee>",
    "<table background=javascript:alert(1)>",
    "<td background=javascript:alert(1)>",
    "<p id=document class=admin name=body>clobbers</p>",
    "<a id=x><a id=x name=y href='cid:alert(1)'>clobbers</a>",
    "<x-widget onclick=alert(1)>x</x-widget>",
    "<template><script>alert(1)</script></template>",
    "<!--><script>alert(1)</script>-->",
    "<!-- --!><img src=x onerror=alert(1)> -->",
    "<![CDATA[<script>alert(1)</script>]]>",
    "<?xml-stylesheet href=javascript:alert(1)?><p>x",
    "<?php echo '<script>alert(1)</script>' ?>",
    "</p onmouseover=alert(1)><p>x",
    "<a href=\"https://a.example/\" onclick=\"alert(1)\" ping=javascript:alert(1)>x</a>",
    "<a href='https://a.example/' target=_top download>x</a>",
    "<portal src=javascript:alert(1)></portal>",
    "<dialog open>over everything</dialog>",
    "\u{feff}<script>alert(1)</script>",
];

/// Elements that must not come out. An element that is not listed here is checked by its attributes alone.
const TAGS: &[&str] = &[
    "script",
    "style",
    "iframe",
    "frame",
    "frameset",
    "object",
    "embed",
    "applet",
    "base",
    "meta",
    "link",
    "form",
    "input",
    "button",
    "select",
    "textarea",
    "svg",
    "math",
    "template",
    "noscript",
    "portal",
    "dialog",
    "marquee",
    "title",
    "xmp",
    "noembed",
    "isindex",
    "x-widget",
    "plaintext",
];
/// Attributes that may come out.
const ATTRIBUTES: &[&str] = &[
    "href", "src", "title", "alt", "rel", "poster", "controls", "width", "height", "type", "lang", "colspan",
    "rowspan", "hreflang", "align", "char", "charoff", "datetime", "headers", "scope", "span", "start", "summary",
    "valign", "dir", "color", "size",
];

/// Fails if anything that runs is left. Reads the text again as a browser would: what counts is the tree, not the spelling.
pub(crate) fn assert_harmless(made: &str, of: &str) {
    let tree = Tree::of_fragment(made, LIMITS).unwrap();
    for node in tree.inside(tree.root()) {
        assert!(!TAGS.contains(&tree.name(node)), "{of} became {made}");
        for (name, value) in tree.attributes(node) {
            assert!(ATTRIBUTES.contains(&name), "{of} became {made}");
            let scheme = Url::parse(value).map(|url| url.scheme().to_owned());
            let harmless = scheme.is_err() || scheme.is_ok_and(|scheme| LINK_SCHEMES.contains(&scheme.as_str()));
            assert!(harmless || !matches!(name, "href" | "src" | "poster"), "{of} became {made}");
        }
    }
}
