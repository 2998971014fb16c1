//! Enums whose variants have a name in files, metrics or reports.

/// Defines an enum from variants and their names. It has the constant `ALL`, which lists the variants in this order, and the
/// method `name`. Files name the variants the same way.
macro_rules! named_enum {
    (
        $(#[$attribute:meta])*
        $visibility:vis enum $Enum:ident {
            $($(#[$variant_attribute:meta])* $Variant:ident = $name:literal,)+
        }
    ) => {
        $(#[$attribute])*
        #[derive(
            Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, ::serde::Deserialize, ::serde::Serialize
        )]
        $visibility enum $Enum {
            $($(#[$variant_attribute])* #[serde(rename = $name)] $Variant,)+
        }

        impl $Enum {
            /// All variants.
            #[allow(dead_code, reason = "not every enum is listed")]
            $visibility const ALL: [Self; [$($name),+].len()] = [$(Self::$Variant),+];

            /// Name of the variant.
            $visibility const fn name(self) -> &'static str {
                match self {
                    $(Self::$Variant => $name,)+
                }
            }
        }
    };
}

pub(crate) use named_enum;
