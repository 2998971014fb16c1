//! Configuration of the property tests beside the code.

use proptest::{prelude::ProptestConfig, test_runner::FileFailurePersistence};

/// This many cases, unless `PROPTEST_CASES` says otherwise. Failed cases are stored beside those of the integration tests.
pub(crate) fn property_config(cases: u32) -> ProptestConfig {
    let persistence = FileFailurePersistence::SourceParallel("tests/proptest-regressions");
    ProptestConfig { failure_persistence: Some(Box::new(persistence)), ..ProptestConfig::with_cases(cases) }
}
