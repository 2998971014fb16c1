//! Tests of key files: authentication, and error messages without secrets.

use super::*;

const NOW: u64 = 1_800_000_000;

fn keys(source: &str) -> Result<ApiKeys, String> {
    let env = |name: &str| (name == "OPS_KEY").then(|| "from-the-environment".to_owned());
    ApiKeys::parse("keys.toml", source, env).map_err(|problem| problem.to_string())
}

fn authenticate(keys: &ApiKeys, shown: Option<&str>, names: &[&str]) -> Result<String, KeyRejection> {
    let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
    keys.authenticate(shown, &names, NOW).map(|key| key.name.to_string())
}

#[test]
fn key_is_matched_by_text_digest_environment_or_certificate() {
    let keys = keys(
        "[[key]]\nname = \"a\"\nkey = \"hunter-one\"\n\
         [[key]]\nname = \"b\"\nkey_sha256 = \"f52fbd32b2b3b86ff88ef6c490628285f482af15ddcb29541f94bcf526a3f6c7\"\n\
         [[key]]\nname = \"c\"\nkey_env = \"OPS_KEY\"\n\
         [[key]]\nname = \"d\"\ncertificate_name = \"robots\"\n\
         [[key]]\nname = \"e\"\nkey = \"old\"\nexpires = 2027-01-15T08:00:00Z\n\
         [[key]]\nname = \"f\"\nkey = \"older\"\nexpires = 2027-01-15T09:00:01+01:00\n",
    )
    .unwrap();
    assert_eq!(authenticate(&keys, Some("hunter-one"), &[]).as_deref(), Ok("a"));
    assert_eq!(authenticate(&keys, Some("hunter2"), &[]).as_deref(), Ok("b"));
    assert_eq!(authenticate(&keys, Some("from-the-environment"), &[]).as_deref(), Ok("c"));
    assert_eq!(authenticate(&keys, None, &["x", "robots"]).as_deref(), Ok("d"));
    assert_eq!(authenticate(&keys, Some("old"), &[]), Err(KeyRejection::Expired), "expires to the second");
    assert_eq!(authenticate(&keys, Some("older"), &[]).as_deref(), Ok("f"));
    assert_eq!(authenticate(&keys, Some("wrong"), &["robots"]), Err(KeyRejection::Unknown));
    assert_eq!(authenticate(&keys, None, &["x"]), Err(KeyRejection::Missing));
}

#[test]
fn parse_errors_never_contain_secrets() {
    let secret = "hunter2hunter2";
    let valid = format!("[[key]]\nname = \"a\"\nkey = \"{secret}\"\n");
    for (source, words) in [
        (valid.replace("key =", "kei ="), "did you mean `key`"),
        (valid.replace("name", "nam"), "did you mean `name`"),
        (format!("{valid}sessions_max = \"{secret}\"\n"), "keys.toml:4:16: invalid value"),
        (format!("{valid}sessions_max = 0\n"), "a limit of 0"),
        (format!("{valid}{valid}"), "used by another key"),
        (format!("{valid}{}", valid.replace("\"a\"", "\"b\"")), "[[key]] \"b\": same secret as key \"a\""),
        (format!("{valid}key_env = \"X\"\n"), "only one of"),
        (valid.replace("key =", "key_sha256 ="), "64 hexadecimal digits"),
        (valid.replace("key =", "key_env ="), "is not set"),
        (valid.replace("hunter2h", "hunter2 h"), "sent in a header"),
        (valid.replace("hunter2hunter2", ""), "sent in a header"),
        ("[[key]]\nname = \"a\"\n".to_owned(), "is required"),
        (valid.replace("\"a\"", "\" \""), "name is empty"),
        (format!("{valid}expires = 2026-12-31T00:00:00\n"), "2026-12-31T00:00:00Z"),
        (
            format!("{valid}expires = \"{secret}\"\n"),
            "keys.toml:4:11: expires: must look like 2026-12-31T00:00:00Z or 2026-12-31, without quotes",
        ),
        (valid.replace("]]\n", "]\n"), "invalid value"),
        (valid.replace("\"\n", "\n"), "keys.toml:2"),
    ] {
        let problem = keys(&source).err().unwrap_or_default();
        // The name of an environment variable is not a secret.
        let shown = problem.contains("hunter2") && !problem.contains("is not set");
        assert!(problem.contains(words) && !shown, "{source}: {problem}");
    }
    assert_eq!(keys("").unwrap().iter().count(), 0);
}

#[test]
fn certificate_names_must_be_unique_and_not_empty() {
    let robots = |name: &str| format!("[[key]]\nname = \"{name}\"\ncertificate_name = \"robots\"\n");
    let problem = keys(&(robots("a") + &robots("b"))).unwrap_err();
    assert!(problem.contains("[[key]] \"b\": same certificate_name as key \"a\""), "{problem}");
    let problem = keys(&robots("a").replace("robots", " ")).unwrap_err();
    assert!(problem.contains("certificate_name is empty"), "{problem}");
}

#[test]
fn file_with_too_many_keys_is_rejected() {
    let file = |count: usize| -> String {
        (0..count).map(|number| format!("[[key]]\nname = \"n{number}\"\nkey = \"k{number}\"\n")).collect()
    };
    let most = keys(&file(KEYS_MAX)).unwrap();
    assert_eq!(authenticate(&most, Some(&format!("k{}", KEYS_MAX - 1)), &[]).as_deref(), Ok("n9999"));
    let problem = keys(&file(KEYS_MAX + 1)).unwrap_err();
    assert!(problem.contains("10001; the maximum is 10000"), "{problem}");
}

#[test]
fn key_can_access_only_matching_targets() {
    let keys = keys(
        "[[key]]\nname = \"a\"\nkey = \"k\"\nmodels = [\"whisper-*\"]\nprotocols = [\"mac*\"]\n\
         paths = [\"/v1/*\"]\nprofiles = [\"speech\"]\n",
    )
    .unwrap();
    let key = keys.iter().next().unwrap();
    let target = AccessTarget {
        path: "/v1/realtime",
        protocol: "macaw",
        model: Some("whisper-1"),
        profile: Some("speech"),
    };
    assert!(
        key.can_access(&target) && key.can_access(&AccessTarget { model: None, profile: None, ..target })
    );
    for other in [
        AccessTarget { path: "/v2", ..target },
        AccessTarget { protocol: "vosk", ..target },
        AccessTarget { model: Some("gpt"), ..target },
        AccessTarget { model: Some(""), ..target },
        AccessTarget { profile: Some("conversation"), ..target },
    ] {
        assert!(!key.can_access(&other), "{other:?}");
    }
}

#[test]
fn empty_model_needs_a_pattern_matching_empty() {
    let can_access = |models: &str| {
        let keys = keys(&format!("[[key]]\nname = \"a\"\nkey = \"k\"\n{models}")).unwrap();
        keys.iter().all(|key| {
            key.can_access(&AccessTarget { path: "/", protocol: "p", model: Some(""), profile: None })
        })
    };
    for models in ["", "models = [\"*\"]", "models = [\"whisper-*\", \"\"]"] {
        assert!(can_access(models), "{models}");
    }
    for models in ["models = [\"whisper-*\"]", "models = [\"?*\"]", "models = []"] {
        assert!(!can_access(models), "{models}");
    }
}

proptest::proptest! {
    #[test]
    fn arbitrary_key_file_never_panics(source in ".{0,200}") {
        let _ = (keys(&source), entry_digests(&source));
    }
}
