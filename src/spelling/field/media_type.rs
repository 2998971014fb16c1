//! Media types (RFC 9110 §8.3.1) as words of a `value_map`: case, spaces and further parameters do not count.

/// Looks up a media type among words such as `audio/pcm` and `audio/pcm;rate=*`. The word with the most parameters of those that the
/// type has wins. A `*` at the end stands for anything, and is given back as the rest. `None` for a text that is no media type.
pub(super) fn find_media_type<'m>(
    map: impl Iterator<Item = (&'m String, &'m String)>,
    text: &str,
) -> Option<(&'m str, String)> {
    let (kind, parameters) = split(text)?;
    let matches = map.filter_map(|(word, value)| {
        let (known, wanted) = split(word)?;
        let mut rest = String::new();
        let mut is_there = |(name, value): &(String, &str)| {
            let (_, given) = parameters.iter().find(|(given, _)| given == name)?;
            match value.strip_suffix('*') {
                Some(start) => rest = get_rest(given, start)?,
                None => given.eq_ignore_ascii_case(value).then_some(())?,
            }
            Some(())
        };
        let fits = known == kind && wanted.iter().all(|parameter| is_there(parameter).is_some());
        fits.then_some((wanted.len(), (value.as_str(), rest)))
    });
    matches.max_by_key(|(count, _)| *count).map(|(_, found)| found)
}

fn get_rest(given: &str, start: &str) -> Option<String> {
    let has_start = given.get(..start.len()).is_some_and(|head| head.eq_ignore_ascii_case(start));
    has_start.then(|| given[start.len()..].to_owned())
}

/// Parameters of a media type, with names in lower case and values without quotes.
type Parameters<'t> = Vec<(String, &'t str)>;

/// A media type in lower case, and its parameters.
fn split(text: &str) -> Option<(String, Parameters<'_>)> {
    let mut parts = text.split(';').map(str::trim);
    let kind = parts.next().filter(|kind| kind.contains('/'))?;
    let parameters = parts.filter_map(|part| {
        let (name, value) = part.split_once('=')?;
        let value = value.trim().trim_matches('"');
        Some((name.trim().to_ascii_lowercase(), value))
    });
    Some((kind.to_ascii_lowercase(), parameters.collect()))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn case_spaces_and_further_parameters_do_not_count() {
        let words = [("audio/pcm", "16000"), ("audio/pcm;rate=*", "*"), ("audio/L16", "l16")];
        let map: BTreeMap<String, String> =
            words.map(|(word, value)| (word.to_owned(), value.to_owned())).into();
        for (text, expected) in [
            ("audio/pcm", Some(("16000", ""))),
            ("Audio/PCM", Some(("16000", ""))),
            ("audio/pcm;rate=48000", Some(("*", "48000"))),
            ("audio/pcm; rate=48000", Some(("*", "48000"))),
            ("AUDIO/PCM ; Rate = \"48000\"; channels=1", Some(("*", "48000"))),
            ("audio/pcm;channels=1", Some(("16000", ""))),
            ("audio/l16;rate=8000", Some(("l16", ""))),
            ("audio/opus", None),
            ("pcm", None),
            ("", None),
        ] {
            let found = find_media_type(map.iter(), text);
            assert_eq!(found.as_ref().map(|(value, rest)| (*value, rest.as_str())), expected, "{text}");
        }
    }
}
