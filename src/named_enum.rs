//! Enums whose variants have a name in files, metrics or reports.

/// Defines an enum from variants and their names. It has the constant `ALL`, which lists the variants in this order, and the
/// method `name`.
macro_rules! named_enum {
    (
        $(#[$attribute:meta])*
        $visibility:vis enum $Enum:ident {
            $($(#[$variant_attribute:meta])* $Variant:ident = $name:literal,)+
        }
    ) => {
        $(#[$attribute])*
        $visibility enum $Enum {
            $($(#[$variant_attribute])* $Variant,)+
        }

        impl $Enum {
            /// All variants.
            pub const ALL: [Self; [$($name),+].len()] = [$(Self::$Variant),+];

            /// Name of the variant.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$Variant => $name,)+
                }
            }
        }
    };
}

pub(crate) use named_enum;
