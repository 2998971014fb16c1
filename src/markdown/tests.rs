use proptest::prelude::*;

use super::*;

#[test]
fn marks_are_not_read() {
    for (text, spoken) in [
        ("# Title\n\nWords.", "Title.\n\nWords."),
        ("### 3. Results ###\nGood", "3. Results.\nGood"),
        ("# 10 Tips\nOne", "10 Tips.\nOne"),
        ("## What now?", "What now?"),
        ("Title\n=====\nWords", "Title.\n\nWords"),
        ("Title\n---\nWords", "Title.\n\nWords"),
        ("It ended.\n---\nWords", "It ended.\n\nWords"),
        (
            "**bold** and *it* and ***both*** and __b__ and _it_ and ~~gone~~",
            "bold and it and both and b and it and gone",
        ),
        ("**Note:** un*believ*able, un**believ**able", "Note: unbelievable, unbelievable"),
        ("这是**重点**和*强调*内容", "这是重点和强调内容"),
        ("*a **b** c*", "a b c"),
        ("`code` and ``a ` b`` and ```x```", "code and a ` b and x"),
        ("a ` b", "a  b"),
        ("`*raw* [x](y)`", "*raw* [x](y)"),
        ("```py\nprint(1)\n# no heading\n```\nDone", "\nprint(1)\n# no heading\n\nDone"),
        ("~~~\n```\n~~~", "\n```\n"),
        ("```\nopen", "\nopen"),
        ("- first\n- second!\n* third\n+ fourth\n  - nested", "first.\nsecond!\nthird.\nfourth.\nnested."),
        ("1. one\n2) two", "1, one.\n2, two."),
        ("- [ ] open\n- [x] done", "open.\ndone."),
        ("> quoted\n>> twice\n>\n> - item", "quoted\ntwice\n\nitem."),
        ("- 中文", "中文。"),
        ("a\n\n---\n\n* * *\n___\nb", "a\n\n\n\n\n\nb"),
        ("| a | b |\n|---|:-:|\n| 1 | **2** |\n| | x\\|y |", "a, b.\n\n1, 2.\nx|y."),
        ("a | b\n--- | ---\n1 | 2\n\nc | d", "a, b.\n\n1, 2.\n\nc | d"),
        ("[text](http://e.com/x?y=1) and ![a cat](cat.png \"t\")", "text and a cat"),
        ("[a **b** [c]](<u v>)", "a b [c]"),
        ("[text][1] and [text][]\n\n[1]: https://e.com \"Title\"", "text and text\n\n"),
        ("[![badge](https://i.io/b.svg)](https://e.com)", "badge"),
        ("said so[^1].\n\n[^1]: In the book.", "said so.\n\n In the book."),
        ("See https://www.example.com/docs/?q=1#top.", "See example.com/docs."),
        ("(https://en.wikipedia.org/wiki/A_(b)), www.x.org!", "(en.wikipedia.org/wiki/A_(b)), x.org!"),
        ("https://e.com/a/very/long/path/that/nobody/reads/aloud/0123", "e.com"),
        ("<https://e.com> <mailto:a@b.org> <a@b.org>", "e.com a@b.org a@b.org"),
        ("one<br>two <b>bold</b> H<sub>2</sub>O <img src=\"x\"/><!-- no\nway -->.", "one two bold H2O  ."),
        ("Q&amp;A &lt;3 &#39;x&#x27; &nope; AT&T;", "Q&A <3 'x' &nope; AT&T;"),
        (r"\*not\* \# 1\. a\_b", "*not* # 1. a_b"),
    ] {
        assert_eq!(without_marks(text), spoken, "{text:?}");
    }
}

#[test]
fn plain_text_is_kept() {
    for text in [
        "2 * 3 * 4 = 24",
        "2*3*4",
        "a*b and a*b*c",
        "2**3",
        "a_b_c, _private, my_file_name.txt",
        "# 5",
        "# 5 is alive",
        "#5 and #hashtag",
        "I'm # 1",
        "C# and F#",
        "5 > 3 and 2 < 3",
        "> 90 % of them",
        ">= 5",
        "x <y and z> w, if i<j",
        "I'm 5'4\"",
        "[John]: hello",
        "[sic] and (this) and f[0](x) and m[i][j]",
        "Either/or, A|B, a | b",
        "1984. It was a cold day.",
        "-5 degrees, +3, ~5 and ~/x",
        "$5.50 & more @ home",
        "He said \"stop\" -- and left.",
        "e.g. this, i.e. that",
        "C:\\new\\table",
        "however, whttp, mhm",
    ] {
        assert_eq!(without_marks(text), text);
    }
}

#[test]
fn lines_know_headings() {
    let kinds = |text: &str| lines(text).into_iter().map(|line| line.kind).collect::<Vec<_>>();
    use LineKind::{Blank, Heading, Text};
    assert_eq!(kinds("# A\nb\n\n```\n# c\n```"), [Heading, Text, Blank, Blank, Text, Blank]);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn words_without_marks_stay(words in "[A-Za-z0-9àé中文 ,.!?;:'\"()%-]{0,80}") {
        prop_assume!(item(words.trim()).is_none() && !is_rule(words.trim()) && !words.contains("www."));
        let kept = without_marks(&words);
        prop_assert_eq!(kept.trim(), words.trim());
    }

    #[test]
    fn no_letter_is_lost(
        pieces in proptest::collection::vec(
            prop::sample::select(vec![
                "# ", "*", "**", "_", "~~", "`", "```", "\n", "> ", "- ", "1. ", "|", " ", "word", "x", "7", "\\", "---", "(", ")", "!",
            ]),
            0..40,
        ),
    ) {
        let text = pieces.concat();
        let letters = |text: &str| text.chars().filter(|letter| letter.is_alphabetic()).collect::<String>();
        let kept = letters(&without_marks(&text));
        // Only the language of a fence is dropped.
        let all = letters(&text);
        prop_assert!(kept == all || text.contains("```") || text.contains("~~~"), "{:?}", text);
    }

    #[test]
    fn any_text_is_read(text in any::<String>()) {
        without_marks(&text);
    }
}

#[test]
fn marks_without_end_take_no_quadratic_time() {
    for piece in ["[", "*a ", "_a ", "`", "` `` ", "<", "[a](", "> ", "&", "| ", "![["] {
        // Quadratic time would show as a test that takes a minute.
        without_marks(&piece.repeat(60_000 / piece.len()));
    }
}
