//! The comparison with other servers: its scripts are complete, its statistics are right, and it runs.

use std::process::Command;

use super::{PoisonError, *};

/// Installs Python if necessary, as root on Debian. False skips the test.
fn has_python() -> bool {
    installed(&ensure("command -v python3", "python3", "install Python 3.11 or newer")).is_some()
}

/// Runs Python with the comparison's modules and without cache files.
fn python(script: &str, arguments: &[&str]) -> String {
    let mut command = Command::new("python3");
    command.args(["-B", "-c", script]).args(arguments).env("PYTHONPATH", example("compare"));
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn comparison_scripts_are_valid() {
    if !has_python() {
        return;
    }
    for name in ["run", "self-time", "contestants.py", "publish.py", "report.py", "bridge.py"] {
        let path = example("compare").join(name);
        python(
            "import sys; compile(open(sys.argv[1]).read(), sys.argv[1], 'exec')",
            &[path.to_str().unwrap()],
        );
    }
    let Output { status, stdout, .. } = Command::new(example("compare/run")).arg("--help").output().unwrap();
    assert!(status.success() && String::from_utf8_lossy(&stdout).contains("--rounds"));
}

#[test]
fn self_time_is_sorted_by_kind() {
    if !has_python() {
        return;
    }
    let script = "import runpy, sys; kind_of = runpy.run_path(sys.argv[1])['kind_of']; \
                  print(', '.join(kind_of(*line.split(' ', 1)) for line in sys.argv[2:]))";
    let symbols = [
        "[kernel.kallsyms] [k] _raw_spin_unlock_irqrestore",
        "libc.so.6 [.] __memmove_avx512_unaligned_erms",
        "libc.so.6 [.] epoll_wait",
        "voxbridge [.] <rustfft::avx::Butterfly<A,T> as rustfft::Fft<T>>::process",
        "voxbridge [.] core::ptr::drop_in_place<voxbridge::session::Session>",
        "voxbridge [.] voxbridge_audio::delta_pack::PackedAudio::new",
        "voxbridge [.] 0x0000000000001234",
    ];
    let path = example("compare/self-time");
    let kinds = python(script, &[&[path.to_str().unwrap()], &symbols[..]].concat());
    assert_eq!(
        kinds.trim(),
        "kernel, memmove, memset, malloc, runtime, resampling and its transforms, session, \
         kept audio and speech input, rest"
    );
}

fn measured_round(round: u32, who: &str, cpu_us: f64, valid: bool) -> Value {
    measured_row("conversation", round, who, cpu_us, valid)
}

fn measured_row(row: &str, round: u32, who: &str, cpu_us: f64, valid: bool) -> Value {
    json!({
        "row": row, "round": round, "who": who, "sessions": 100, "cpu_us": cpu_us, "user_us": 1.0,
        "system_us": 2.0, "up": {"p50": 0.1, "p99": 0.3}, "down": {"p50": 0.1, "p99": 0.6}, "idle_kb": 20.0,
        "active_kb": 150.0, "lost": 0, "sessions_lost": 0, "valid": valid,
    })
}

fn about() -> Value {
    json!({
        "program": "voxbridge 0.1.0 (c0ffee7), vector instructions: avx2", "changed_since": false, "cores": 2,
        "processor": "p", "kernel": "k", "relays": ["n"], "python": "3", "requirements": [],
    })
}

#[test]
fn ratio_is_median_of_valid_rounds() {
    if !has_python() {
        return;
    }
    // The second round ran on a slower machine: separate medians would give 300 to 200. The last round is
    // invalid.
    let rounds = [(100.0, 200.0, true), (700.0, 1000.0, true), (300.0, 150.0, true), (1.0, 1000.0, false)];
    let rounds: Vec<Value> = (0..)
        .zip(rounds)
        .flat_map(|(round, (ours, relay, valid))| {
            [measured_round(round, "voxbridge", ours, true), measured_round(round, "nginx", relay, valid)]
        })
        .collect();
    let results = json!({"about": about(), "options": {"real_time": true}, "rounds": rounds}).to_string();
    let table = python(
        "import json, report, sys; print(report.markdown_table(json.loads(sys.argv[1])))",
        &[&results],
    );
    for words in [
        "0.70× nginx | ≤ 0.75× nginx met |",
        "≤ 0.15 / 0.5 ms **missed**",
        "1 of 4 rounds left out",
        "(c0ffee7), vector instructions: avx2",
        "real-time",
    ] {
        assert!(table.contains(words), "no {words:?} in\n{table}");
    }
}

/// Publishes results in a copy of the pages; returns what the script says if it fails.
fn publish(results: &Value, project: &Path) -> Result<(), String> {
    let script = "import json, pathlib, publish, sys
try: publish.publish(json.loads(sys.argv[1]), pathlib.Path(sys.argv[2]))
except publish.PublishError as error: print(error)";
    let said = python(script, &[&results.to_string(), project.to_str().unwrap()]);
    if said.is_empty() { Ok(()) } else { Err(said) }
}

#[test]
fn published_figures_replace_those_between_the_markers_and_nothing_else() {
    if !has_python() {
        return;
    }
    let project = scratch("compare-publish");
    let pages = ["README.md", "examples/compare/README.md"];
    fs::create_dir_all(project.join("examples/compare")).unwrap();
    let before = pages.map(|page| {
        let text = fs::read_to_string(example("..").join(page)).unwrap();
        fs::write(project.join(page), &text).unwrap();
        text
    });
    let costs =
        [("voxbridge", 700.0), ("nginx", 1000.0), ("haproxy", 1400.0), ("rust", 2000.0), ("python", 2800.0)];
    let rows = ["conversation", "many", "silence"].into_iter().flat_map(|row| {
        // The plain bridges take part in the first row only.
        let names = if row == "conversation" { &costs[..] } else { &costs[..3] };
        names.iter().map(move |(who, cpu_us)| measured_row(row, 0, who, *cpu_us, true))
    });
    let options =
        json!({"real_time": true, "rounds": 1, "seconds": 5.0, "only": ["conversation", "many", "silence"]});
    let results = json!({"about": about(), "options": options, "rounds": rows.collect::<Vec<_>>()});

    let mut changed = results.clone();
    changed["about"]["changed_since"] = json!(true);
    assert!(publish(&changed, &project).unwrap_err().contains("not committed"));
    let mut partial = results.clone();
    partial["rounds"].as_array_mut().unwrap().pop();
    assert!(publish(&partial, &project).unwrap_err().contains("no valid round of haproxy"));
    let read = |page: &str| fs::read_to_string(project.join(page)).unwrap();
    assert_eq!(pages.map(read), before, "nothing is published that is not complete");

    publish(&results, &project).unwrap();
    for ((page, name), before) in pages.iter().zip(["cost", "figures"]).zip(before) {
        let (begin, end) = (format!("<!-- {name} -->\n"), format!("<!-- /{name} -->\n"));
        let around = |text: &str| {
            let (head, rest) = text.split_once(&begin).unwrap();
            let (inside, tail) = rest.split_once(&end).unwrap();
            (head.to_owned(), inside.to_owned(), tail.to_owned())
        };
        let (after, before) = (around(&read(page)), around(&before));
        assert_eq!((&after.0, &after.2), (&before.0, &before.2), "{page}");
        assert!(
            after.1.contains("ommit c0ffee7") && after.1.contains("--rounds 1 --seconds 5"),
            "{page}: {}",
            after.1
        );
        assert!(!after.1.contains("goal") && after.1 != before.1, "{page}: {}", after.1);
    }
    let readme = read("README.md");
    for words in [
        "takes 700 µs",
        "is 0.70 of what nginx",
        "0.35 of a plain bridge",
        "| 700 µs | 1000 µs |",
        "with 2 cores, p",
    ] {
        assert!(readme.contains(words), "no {words:?}");
    }
    assert!(readme.lines().count() <= 130);
    assert!(read("examples/compare/cpu.svg").contains("voxbridge 700"));
}

/// Only the script that measures writes a commit into README.
#[test]
fn readme_has_commits_only_between_the_markers_of_the_figures() {
    let readme = fs::read_to_string(example("../README.md")).unwrap();
    let (head, rest) = readme.split_once("<!-- cost -->").unwrap();
    let (_, tail) = rest.split_once("<!-- /cost -->").unwrap();
    for word in [head, tail].concat().split(|c: char| !c.is_ascii_alphanumeric()) {
        let is_commit = (7..=40).contains(&word.len())
            && word.chars().all(|c| c.is_ascii_digit() || ('a'..='f').contains(&c))
            && word.chars().any(|c| c.is_ascii_digit());
        assert!(!is_commit, "{word} looks like a commit");
    }
}

/// Runs the programs of this debug build, so the figures mean nothing. `cargo test` builds the example;
/// `cargo test --test` does not.
#[test]
#[ignore = "needs root on Debian, and installs nginx and haproxy"]
fn every_contestant_carries_conversations() {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let program = Path::new(env!("CARGO_BIN_EXE_voxbridge"));
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("compare");
    let mut command = Command::new(example("compare/run"));
    command.args("--rounds 1 --sessions 4 --many 4 --seconds 3 --only conversation,silence,start".split(' '));
    command.arg("--program").arg(program).arg("--load").arg(program.with_file_name("examples").join("load"));
    let output = command.arg("--out").arg(&out).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let results: Value = serde_json::from_slice(&fs::read(out.join("results.json")).unwrap()).unwrap();
    let turns = results["rounds"].as_array().unwrap();
    let contestants: Vec<_> =
        turns.iter().map(|measured_round| measured_round["who"].as_str().unwrap()).collect();
    assert_eq!(
        contestants,
        ["voxbridge", "nginx", "haproxy", "rust", "python", "voxbridge", "nginx", "haproxy"]
    );
    for measured_round in turns {
        assert_has(measured_round, json!({"/lost": 0, "/sessions_lost": 0}));
        assert!(measured_round["cpu_us"].as_f64().unwrap() > 0.0, "{measured_round}");
    }
}
