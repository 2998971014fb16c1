//! Some 400 files of public encoders, as they are and as the world changes them, against what ffmpeg decodes of them.
//!
//! Length and energy agree within 50 ms and 1 dB.

mod changes;
mod compare;
mod encode;

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};

use changes::Files;

use super::*;

/// Files whose recordings are damaged or cut off, by the beginning of their names: decoded so far, and reported.
const DAMAGED: [&str; 2] = ["cut_", "count_more_"];

/// Programs and the packages that have them.
const PROGRAMS: [(&str, &str); 6] = [
    ("ffmpeg", "ffmpeg"),
    ("lame", "lame"),
    ("opusenc", "opus-tools"),
    ("flac", "flac"),
    ("mkvmerge", "mkvtoolnix"),
    ("sox", "sox"),
];

fn has_programs() -> bool {
    static READY: OnceLock<Result<(), String>> = OnceLock::new();
    let ensure_all = || {
        PROGRAMS.iter().try_for_each(|(program, package)| {
            ensure(&format!("command -v {program}"), package, "install it with the system package manager")
        })
    };
    installed(READY.get_or_init(ensure_all)).is_some()
}

/// Writes all files, and returns their paths.
fn make_corpus(dir: &Path) -> Vec<PathBuf> {
    let mut paths = encode::with_ffmpeg(dir);
    let name = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().into_owned();
    let files: Files = paths.iter().map(|path| (name(path), std::fs::read(path).unwrap())).collect();
    paths.extend(encode::with_own_programs(dir));
    paths.extend(encode::with_mkvmerge(dir, &paths));
    paths.extend(encode::with_times(dir));
    let changed = [
        changes::joined(&files),
        changes::surrounded(&files),
        changes::cut_off(&files),
        changes::counted_wrong(&files),
        changes::positioned_wrong(&files),
        changes::skipped_at_start(&files),
        changes::edited(&files),
    ];
    for (name, bytes) in changed.into_iter().flatten() {
        let path = dir.join(name);
        std::fs::write(&path, bytes).unwrap();
        paths.push(path);
    }
    paths
}

/// The expected audio: what ffmpeg decodes, or what it decodes of the parts where it ends at the first, trims at positions that
/// are wrong, plays more than an edit, or knows no file behind other bytes.
fn expected(path: &Path, name: &str) -> Vec<i16> {
    let of_parts =
        |names: &str| names.split(' ').flat_map(|part| reference(&path.with_file_name(part), &[])).collect();
    if let Some((_, parts)) =
        changes::JOINS_BEYOND_FFMPEG.iter().find(|(joined, _)| name == format!("joined_{joined}"))
    {
        return of_parts(parts);
    }
    if let Some((_, part)) = name.strip_prefix("position_").and_then(|rest| rest.split_once('_')) {
        return of_parts(part);
    }
    if name.starts_with("timed_") {
        return reference(path, &["-af", "aresample=16000:async=1:first_pts=0:min_hard_comp=0.05"]);
    }
    if let Some((label, media)) = name.strip_prefix("edit_").and_then(|rest| rest.split_once('_')) {
        return edited(
            &decoded_by_ffmpeg(&["-ignore_editlist", "1"], &path.with_file_name(media), &[]),
            label,
        );
    }
    match name.strip_prefix("bom_") {
        Some(without) => of_parts(without),
        None => reference(path, &[]),
    }
}

/// The audio of a movie with these edits. ffmpeg plays whole packets, up to 93 ms, and no part twice.
fn edited(media: &[i16], label: &str) -> Vec<i16> {
    let (_, edits) = changes::EDITS.iter().find(|(name, _)| *name == label).unwrap();
    let samples = |seconds: f64| (seconds * 16_000.0) as usize;
    let part = |(length, start): &(f64, Option<f64>)| match start {
        None => vec![0; samples(*length)],
        Some(start) => media[samples(*start)..samples(start + length).min(media.len())].to_vec(),
    };
    edits.iter().flat_map(part).collect()
}

/// The audio that ffmpeg decodes.
fn reference(path: &Path, filter: &[&str]) -> Vec<i16> {
    decoded_by_ffmpeg(&[], path, filter)
}

fn decoded_by_ffmpeg(options: &[&str], path: &Path, filter: &[&str]) -> Vec<i16> {
    let mut command = ffmpeg();
    command
        .args(options)
        .arg("-i")
        .arg(path)
        .args(["-map", "a:0"])
        .args(filter)
        .args(["-ac", "1", "-ar", "16000", "-f", "s16le", "-"]);
    let decoded = command.output().unwrap().stdout;
    decoded.chunks_exact(2).map(|two| i16::from_le_bytes([two[0], two[1]])).collect()
}

/// The audio and the problem.
fn decode(path: &Path) -> (Vec<i16>, Option<String>) {
    let limits = DecodeLimits { decoded_max: Duration::from_secs(60), ..DecodeLimits::default() };
    let (mut samples, mut problem) = (Vec::new(), None);
    match Decoder::open(std::fs::read(path).unwrap().into(), limits) {
        Ok(mut decoder) => {
            for chunk in std::iter::from_fn(|| decoder.next_chunk()) {
                match chunk {
                    Ok(chunk) => samples.extend(chunk),
                    Err(error) => problem = Some(error.to_string()),
                }
            }
        }
        Err(error) => problem = Some(error.to_string()),
    }
    (samples, problem)
}

/// The fault of a file.
fn check(path: &Path) -> Option<String> {
    let name = path.file_name().unwrap().to_string_lossy();
    let (ours, problem) = decode(path);
    let is_damaged = DAMAGED.iter().any(|start| name.starts_with(start));
    // A count that exceeds the frames by some is within the tolerance.
    let may_be_whole = name.starts_with("count_");
    if problem.is_some() != is_damaged && !may_be_whole {
        return Some(format!("reported: {problem:?}"));
    }
    compare::difference(&expected(path, &name), &ours)
}

/// Runs the checks on all processors.
fn check_all(paths: &[PathBuf]) -> BTreeMap<String, String> {
    let next = AtomicUsize::new(0);
    let work = || {
        let index = || paths.get(next.fetch_add(1, Relaxed));
        let name = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().into_owned();
        std::iter::from_fn(index).filter_map(|path| Some((name(path), check(path)?))).collect::<Vec<_>>()
    };
    let processors = std::thread::available_parallelism().map_or(2, usize::from);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..processors).map(|_| scope.spawn(work)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn files_decode_as_ffmpeg_does() {
    if !has_programs() {
        return;
    }
    let paths = make_corpus(&new_dir("decoded_files"));
    assert!(paths.len() > 380, "{} files", paths.len());
    let wrong = check_all(&paths);
    assert!(wrong.is_empty(), "{} of {} files differ: {wrong:#?}", wrong.len(), paths.len());
}

/// A folder for the files of a test.
fn new_dir(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).unwrap();
    dir
}

#[test]
fn refusals_name_the_codec() {
    if !has_programs() {
        return;
    }
    for (path, codec) in encode::with_other_codecs(&new_dir("other_codecs")) {
        let (samples, problem) = decode(&path);
        let problem = problem.expect("the codec is not supported");
        let expected = format!("has the codec {codec}, which is not supported");
        assert!(samples.is_empty() && problem.contains(&expected), "{}: {problem}", path.display());
    }
}

#[test]
fn default_track_among_those_that_can_be_decoded_is_heard() {
    if !has_programs() {
        return;
    }
    for path in encode::with_two_tracks(&new_dir("two_tracks")) {
        let decoder = Decoder::open(std::fs::read(&path).unwrap().into(), DecodeLimits::default()).unwrap();
        assert_eq!(decoder.info().track, Some((2, 2)), "{}", path.display());
        let (samples, _) = decode(&path);
        let loudest = samples.iter().map(|sample| sample.unsigned_abs()).max();
        assert!(loudest > Some(3000), "{}: {loudest:?}", path.display());
    }
}
