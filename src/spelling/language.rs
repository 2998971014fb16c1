//! Languages as clients name them: BCP 47 tags in any case, and the three-letter codes of ISO 639, become ISO 639-1.

use std::borrow::Cow;

/// The language of a tag (RFC 5646 §2.1), ISO 639-1 where it has a code there: `zh` for `cmn-Hans-CN`, `zho` or `ZH_cn`. `_` may
/// stand for `-`. Another tag gives its first part in lower case.
#[must_use]
pub fn primary_language(tag: &str) -> Cow<'_, str> {
    let part = tag.split(['-', '_']).next().unwrap_or_default().trim();
    let known = CODES.iter().find(|(_, codes)| codes.split(' ').any(|code| code.eq_ignore_ascii_case(part)));
    match known {
        Some((language, _)) => Cow::Borrowed(*language),
        None if part.bytes().any(|byte| byte.is_ascii_uppercase()) => Cow::Owned(part.to_ascii_lowercase()),
        None => Cow::Borrowed(part),
    }
}

/// The three-letter codes (ISO 639-2/T, 639-2/B, 639-3) of languages that speech services commonly offer. Macrolanguages have the
/// codes of their largest members.
const CODES: [(&str, &str); 36] = [
    ("ar", "ara arb"),
    ("bg", "bul"),
    ("ca", "cat"),
    ("cs", "ces cze"),
    ("da", "dan"),
    ("de", "deu ger"),
    ("el", "ell gre"),
    ("en", "eng"),
    ("es", "spa"),
    ("et", "est ekk"),
    ("fa", "fas per pes"),
    ("fi", "fin"),
    ("fr", "fra fre"),
    ("he", "heb iw"),
    ("hi", "hin"),
    ("hr", "hrv"),
    ("hu", "hun"),
    ("id", "ind"),
    ("it", "ita"),
    ("ja", "jpn"),
    ("ko", "kor"),
    ("lt", "lit"),
    ("lv", "lav lvs"),
    ("ms", "msa may zsm"),
    ("nl", "nld dut"),
    ("no", "nor nob nb"),
    ("pl", "pol"),
    ("pt", "por"),
    ("ro", "ron rum"),
    ("ru", "rus"),
    ("sk", "slk slo"),
    ("sv", "swe"),
    ("th", "tha"),
    ("tr", "tur"),
    ("uk", "ukr"),
    // Cantonese is written in Chinese, too, and no prompt is nearer.
    ("zh", "zho chi cmn yue"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_of_every_form_give_their_language() {
        for (tags, language) in [
            (
                "zh zh-CN ZH ZH-cn zh_TW zh-Hans cmn cmn-CN cmn-Hans-CN CMN zho chi yue-Hant-HK cmn_en_ms_ta",
                "zh",
            ),
            ("en en-US EN en_gb eng Eng-GB", "en"),
            ("de deu GER de-AT", "de"),
            ("multi", "multi"),
            ("xx XX-yy", "xx"),
        ] {
            for tag in tags.split(' ') {
                assert_eq!(primary_language(tag), language, "{tag}");
            }
        }
        assert_eq!(primary_language(""), "");
    }

    #[test]
    fn codes_are_sorted_and_stand_for_one_language() {
        let mut codes: Vec<&str> = CODES.iter().flat_map(|(_, codes)| codes.split(' ')).collect();
        let count = codes.len();
        codes.sort_unstable();
        codes.dedup();
        assert_eq!(codes.len(), count);
        assert!(CODES.is_sorted_by_key(|(language, _)| *language));
    }
}
