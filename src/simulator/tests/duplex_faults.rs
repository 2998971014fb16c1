//! Each fault of full duplex by its command-line name.

use super::*;
