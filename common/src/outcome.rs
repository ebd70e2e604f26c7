//! The names of outcomes: how a fetch ended, and the kinds of failure.

use crate::named;

named! {
    /// The kinds of failure, each with a row in the penalty table. Histories store their positions: append only.
    FailureKind {
        /// The name has no address, or the name server did not answer.
        Dns = "dns",
        /// No connection.
        Connect = "connect",
        /// The TLS handshake failed: certificate, name, protocol.
        Tls = "tls",
        /// A deadline passed.
        Timeout = "timeout",
        /// A status that is neither success, redirect, throttling nor 410; the report's `http_status` says which.
        Status = "status",
        /// More header, body, or decoded bytes than allowed.
        TooLarge = "too_large",
        /// The body is something else: a page, an empty file.
        NotAFeed = "not_a_feed",
        /// The body or the answer is broken.
        Malformed = "malformed",
        /// Fewer bytes than announced.
        Truncated = "truncated",
        /// Too many redirects, a loop, or one to nowhere.
        Redirects = "redirects",
        /// The address or port may not be dialled.
        RefusedAddress = "refused_address",
        /// Workers died over it.
        Crashed = "crashed",
        /// The site answered with a check for people, or with a refusal of robots: see [`Blocker`].
        Blocked = "blocked",
    }
}

named! {
    /// The service that answered in place of a site; the label of `feedfleet_blocked_total`.
    Blocker {
        /// Cloudflare's challenges and blocks.
        Cloudflare = "cloudflare",
        /// Akamai's "Access Denied".
        Akamai = "akamai",
        /// DataDome's captcha.
        DataDome = "datadome",
        /// Imperva's Incapsula.
        Imperva = "imperva",
        /// HUMAN's PerimeterX.
        PerimeterX = "perimeterx",
        /// Sucuri's firewall.
        Sucuri = "sucuri",
        /// Amazon's firewall.
        AwsWaf = "aws_waf",
        /// Vercel's checkpoint.
        Vercel = "vercel",
        /// Anubis, which weighs souls.
        Anubis = "anubis",
        /// Reddit's own page.
        Reddit = "reddit",
        /// Tumblr's forms for consent and login.
        Tumblr = "tumblr",
    }
}

named! {
    /// An outcome without its content; the label of `feedfleet_polls_total`. Histories store their positions: append only.
    OutcomeKind {
        /// [`crate::report::Outcome::Modified`]
        Modified = "modified",
        /// [`crate::report::Outcome::NotModified`]
        NotModified = "not_modified",
        /// [`crate::report::Outcome::Throttled`]
        Throttled = "throttled",
        /// [`crate::report::Outcome::Failed`]
        Failed = "failed",
        /// [`crate::report::Outcome::Gone`]
        Gone = "gone",
        /// [`crate::report::Outcome::Deferred`]
        Deferred = "deferred",
    }
}

named! {
    /// What a request to the target of a subscription resulted in.
    DeliveryOutcome {
        /// 2xx: the target has the events.
        Delivered = "delivered",
        /// 429 or 503.
        Throttled = "throttled",
        /// Another 5xx.
        ServerError = "server_error",
        /// 3xx; redirects are not followed.
        Redirect = "redirect",
        /// 410: the target accepts no more requests.
        Gone = "gone",
        /// Another status.
        Rejected = "rejected",
        /// No answer in time.
        Timeout = "timeout",
        /// No connection, or it broke.
        Unreachable = "unreachable",
        /// Not sent: the address or port is not allowed.
        Refused = "refused",
        /// Not sent: the events cannot be signed, because the secret cannot be opened.
        Unsigned = "unsigned",
        /// Not sent: this scheduler had no file descriptor, port or memory for a connection.
        Shortage = "shortage",
    }
}
