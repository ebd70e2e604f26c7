//! rssCloud: registration by REST and by XML-RPC (<https://rsscloud.co/walkthrough>), as a request that is sent like any other.

use url::Url;

/// What a `cloud` element says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cloud {
    /// Where registrations go.
    pub(super) url: Url,
    /// The procedure of a registration by XML-RPC; `None`: it is a form.
    procedure: Option<String>,
}

/// What is called where the element names no procedure.
const USUAL_PROCEDURE: &str = "rssCloud.rssPleaseNotify";

/// Where notifications are to go.
pub(super) struct Callback<'a> {
    /// The fleet's public URL.
    pub(super) public_url: &'a Url,
    /// The path of the callback.
    pub(super) path: &'a str,
}

impl Cloud {
    /// Parses `domain:port/path protocol [procedure]`, as a worker reports it; `None` for protocols that are no longer
    /// offered.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let (place, protocol, procedure) = (words.next()?, words.next()?, words.next());
        let scheme = if protocol == "https-post" { "https" } else { "http" };
        let url = Url::parse(&format!("{scheme}://{place}")).ok()?;
        let is_plain = |name: &&str| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte));
        let procedure = match protocol {
            "http-post" | "https-post" => None,
            "xml-rpc" => Some(procedure.filter(is_plain).unwrap_or(USUAL_PROCEDURE).to_owned()),
            _ => return None,
        };
        Some(Cloud { url, procedure })
    }

    /// Returns the media type and the body of a registration. Notifications come as forms in any case.
    pub(super) fn registration(&self, callback: &Callback<'_>, topic: &str) -> (&'static str, Vec<u8>) {
        let public = callback.public_url;
        let port = public.port_or_known_default().unwrap_or(80);
        let domain = public.host_str().unwrap_or_default();
        let protocol = if public.scheme() == "https" { "https-post" } else { "http-post" };
        match &self.procedure {
            None => {
                let port = port.to_string();
                let fields = [
                    ("notifyProcedure", ""),
                    ("domain", domain),
                    ("port", &port),
                    ("path", callback.path),
                    ("protocol", protocol),
                    ("url1", topic),
                ];
                let form = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
                ("application/x-www-form-urlencoded", form.into_bytes())
            }
            Some(procedure) => {
                let text = |text: &str| format!("<param><value><string>{}</string></value></param>", escaped(text));
                let call = format!(
                    "<?xml version=\"1.0\"?>\n<methodCall><methodName>{procedure}</methodName><params>{}\
                     <param><value><i4>{port}</i4></value></param>{}{}<param><value><array><data><value><string>{}</string>\
                     </value></data></array></value></param>{}</params></methodCall>\n",
                    text(""),
                    text(callback.path),
                    text(protocol),
                    escaped(topic),
                    text(domain),
                );
                ("text/xml", call.into_bytes())
            }
        }
    }
}

/// Text as XML takes it.
fn escaped(text: &str) -> String {
    let plain: String = text.chars().filter(|c| !c.is_control()).collect();
    plain.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Returns whether the beginning of a successful response says that the registration failed nevertheless.
pub(super) fn is_refusal(body: &str) -> bool {
    // XML has either quotes, and spaces around the sign.
    let plain =
        body.chars().filter(|c| !c.is_whitespace()).map(|c| if c == '\'' { '"' } else { c.to_ascii_lowercase() });
    let body: String = plain.collect();
    body.contains("success=\"false\"") || body.contains("<fault>") || body.contains("<boolean>0</boolean>")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clouds_of_known_protocols_are_read() {
        let read = |text| Cloud::parse(text).map(|cloud| (cloud.url.to_string(), cloud.procedure));
        assert_eq!(
            read("c.example:5337/rsscloud/pleaseNotify http-post"),
            Some(("http://c.example:5337/rsscloud/pleaseNotify".into(), None))
        );
        assert_eq!(
            read("b.example:80/?rsscloud=notify http-post"),
            Some(("http://b.example/?rsscloud=notify".into(), None))
        );
        assert_eq!(read("c.example:443/r https-post"), Some(("https://c.example/r".into(), None)));
        let rpc = |procedure: &str| Some(("http://c.example/RPC2".to_owned(), Some(procedure.to_owned())));
        assert_eq!(read("c.example:80/RPC2 xml-rpc radio.rssPleaseNotify"), rpc("radio.rssPleaseNotify"));
        assert_eq!(read("c.example:80/RPC2 xml-rpc a<b>"), rpc(USUAL_PROCEDURE));
        assert_eq!(read("c.example:80/RPC2 xml-rpc"), rpc(USUAL_PROCEDURE));
        assert_eq!([read("c.example:80/r soap"), read("c.example"), read("/ http-post")], [None, None, None]);
    }

    #[test]
    fn a_registration_names_the_callback_and_the_feed() {
        let public_url: Url = "https://fleet.example".parse().unwrap();
        let callback = Callback { public_url: &public_url, path: "/rsscloud/ab" };
        let registration = |cloud| {
            let (media_type, body) = Cloud::parse(cloud).unwrap().registration(&callback, "https://a.example/?a=1&b");
            (media_type, String::from_utf8(body).unwrap())
        };
        let (media_type, form) = registration("c.example:80/r http-post");
        let expected = "notifyProcedure=&domain=fleet.example&port=443&path=%2Frsscloud%2Fab&protocol=https-post&\
                        url1=https%3A%2F%2Fa.example%2F%3Fa%3D1%26b";
        assert_eq!((media_type, &*form), ("application/x-www-form-urlencoded", expected));
        let (media_type, call) = registration("c.example:80/RPC2 xml-rpc");
        assert_eq!(media_type, "text/xml");
        for part in [
            "<i4>443</i4>",
            "https://a.example/?a=1&amp;b",
            "/rsscloud/ab",
            "rssCloud.rssPleaseNotify",
            "fleet.example",
        ] {
            assert!(call.contains(part), "{call}");
        }
    }

    #[test]
    fn refusals_are_told_from_successes() {
        assert!(is_refusal("<notifyResult success=\"false\" msg=\"no\"/>") && is_refusal("<methodResponse><fault>"));
        // As the plugin of WordPress writes it.
        assert!(is_refusal(
            "<?xml version='1.0'?><notifyResult success='false' msg='The Protocol is not available.' />"
        ));
        assert!(is_refusal("<notifyResult\n  success = \"False\"/>"));
        assert!(!is_refusal("<?xml version='1.0'?><notifyResult success='true' msg='Registration successful.' />"));
        assert!(!is_refusal("<notifyResult success=\"true\" msg=\"Thanks\"/>") && !is_refusal(""));
    }
}
