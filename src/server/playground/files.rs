//! The files of the page.

use super::RECORDING;

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SVG: &str = "image/svg+xml";
const JAVASCRIPT: &str = "text/javascript; charset=utf-8";

/// A file with its name, its type and its contents.
type PageFile = (&'static str, &'static str, &'static [u8]);

macro_rules! page_files {
    ($($content_type:ident $name:literal),* $(,)?) => {
        [$(($name, $content_type, include_bytes!(concat!("page/", $name)))),*]
    };
}

/// Every file of the page; the one without a name is the page at [`super::PATH`].
const FILES: &[PageFile] = &page_files![
    HTML "index.html",
    CSS "style.css",
    SVG "icon.svg",
    JAVASCRIPT "app.js",
    JAVASCRIPT "audio.js",
    JAVASCRIPT "camera.js",
    JAVASCRIPT "capture.js",
    JAVASCRIPT "connections.js",
    JAVASCRIPT "conversation.js",
    JAVASCRIPT "measures.js",
    JAVASCRIPT "message_list.js",
    JAVASCRIPT "protocols.js",
    JAVASCRIPT "session.js",
    JAVASCRIPT "timeline.js",
    JAVASCRIPT "trace.js",
    JAVASCRIPT "wires.js",
];

/// Finds a file by its name; returns its type and its contents.
pub(in crate::server) fn find(name: &str) -> Option<(&'static str, &'static [u8])> {
    if name == "recording.wav" {
        return Some(("audio/wav", RECORDING));
    }
    let (_, content_type, contents) = FILES.iter().find(|(known, ..)| *known == name)?;
    Some((content_type, contents))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The limit of 150 kB is for the compressed page; the page keeps it as it is.
    #[test]
    fn page_is_small() {
        let bytes: usize = FILES.iter().map(|(.., contents)| contents.len()).sum();
        assert!(bytes < 150_000, "{bytes}");
    }

    #[test]
    fn page_loads_only_its_own_files() {
        for (name, _, contents) in FILES {
            let text = std::str::from_utf8(contents).unwrap();
            for url in ["http://", "https://", "//cdn"] {
                let others = text.matches(url).count()
                    - text.matches("http://www.w3.org/").count() * usize::from(url == "http://");
                assert_eq!(others, 0, "{name} names another site");
            }
            assert!(!text.contains(" style=") && !text.contains("onclick="), "{name}: inline code or style");
        }
    }
}
