//! `mappings explain`
