//! Arguments of `verify`.

use std::{num::NonZeroUsize, path::PathBuf, time::Duration};

use clap::{
    Args,
    builder::{PossibleValuesParser, TypedValueParser},
};

use super::{UpstreamArgs, examples::VERIFY_EXAMPLES};
use crate::verify::figure::Section;

/// Arguments of `voxbridge verify`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
#[command(after_help = VERIFY_EXAMPLES)]
pub struct VerifyArgs {
    /// MiniCPM-o server to verify, such as ws://HOST:8006/v1/realtime. Repeat the option or separate URLs with commas to verify
    /// several as one; name servers of different dialects in --config
    #[arg(long, value_name = "URL", value_delimiter = ',', required_unless_present_any = ["config", "compare", "turns"])]
    pub upstream: Vec<String>,
    /// CA certificates (PEM) to trust for a wss:// upstream, in addition to the system's
    #[arg(long, value_name = "FILE", requires = "upstream")]
    pub upstream_ca: Option<PathBuf>,
    /// Protocol dialect of the upstream [default: found by asking]
    #[arg(long, value_name = "NAME", requires = "upstream")]
    pub upstream_dialect: Option<String>,
    /// Configuration file of serve, for its upstreams with their tokens, its voices, mappings and language
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Sections to run, separated by commas: server, transcription, speech, languages, assistant, tools, conversation, capacity
    /// [default: all]
    #[arg(long, value_name = "SECTION", value_delimiter = ',', value_parser = section_parser(), hide_possible_values = true)]
    pub only: Vec<Section>,
    /// Sections to leave out, separated by commas
    #[arg(long, value_name = "SECTION", value_delimiter = ',', value_parser = section_parser(), hide_possible_values = true)]
    pub skip: Vec<Section>,
    /// Ask less in each section: fewer recordings and questions, no long text, and a shorter conversation
    #[arg(long)]
    pub quick: bool,
    /// Directory with more recordings and their words in a manifest.json, as examples/speech in voxbridge's source [default:
    /// one recording in the program]
    #[arg(long, value_name = "DIR")]
    pub recordings: Option<PathBuf>,
    /// Languages to speak and to transcribe, separated by commas, such as en,zh,de
    #[arg(long, value_name = "xx", value_delimiter = ',')]
    pub language: Vec<String>,
    /// Most sessions at a time
    #[arg(long, value_name = "N", default_value = "4")]
    pub sessions_max: NonZeroUsize,
    /// Time limit of the whole run. The report has what was measured until then
    #[arg(long, value_name = "SECONDS", default_value = "1200", value_parser = parse_time_max)]
    pub time_max: Duration,
    /// Directory for the traces of failures; it is created if something fails
    #[arg(long, value_name = "DIR", default_value = "voxbridge-verify")]
    pub report: PathBuf,
    /// Print the figures as JSON, and the comparison with --compare
    #[arg(long)]
    pub json: bool,
    /// Also write the report as a page with tables, plots, pictures of failed sessions, and sounds
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Report of an earlier verify --json, to compare this run with. Two of them, separated by a comma, are compared with each
    /// other, without a server
    #[arg(long, value_name = "FILE", value_delimiter = ',')]
    pub compare: Vec<PathBuf>,
    /// Compare judges of the end of a turn on the recordings in this directory, without a server. Each is one turn of a user
    #[arg(long, value_name = "DIR", conflicts_with_all = ["upstream", "config", "compare", "only", "skip", "html"])]
    pub turns: Option<PathBuf>,
    /// Weights of the end-of-turn model for --turns [default: those that examples/engines/setup has fetched]
    #[arg(long, value_name = "FILE", requires = "turns")]
    pub turn_model: Option<PathBuf>,
}

impl VerifyArgs {
    /// The servers, as for `transcribe` and `speak`.
    pub(crate) fn upstreams(&self) -> UpstreamArgs {
        UpstreamArgs {
            upstream: self.upstream.clone(),
            upstream_ca: self.upstream_ca.clone(),
            upstream_dialect: self.upstream_dialect.clone(),
            config: self.config.clone(),
        }
    }

    /// The sections to run, in order.
    pub(crate) fn sections(&self) -> impl Iterator<Item = Section> {
        let is_wanted = |section: &Section| self.only.is_empty() || self.only.contains(section);
        Section::ALL.into_iter().filter(move |it| is_wanted(it) && !self.skip.contains(it))
    }
}

fn section_parser() -> impl TypedValueParser<Value = Section> {
    let names = PossibleValuesParser::new(Section::ALL.map(Section::name));
    names.try_map(|name| Section::from_name(&name).ok_or("unknown section"))
}

fn parse_time_max(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok().filter(|seconds| (1.0..=86_400.0).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| "expected 1 to 86400 seconds, such as 600".to_owned())
}
