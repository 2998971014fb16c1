//! Tests of schemas: which values fit, and the bound on the work of a check for any schema and arguments.

use proptest::prelude::*;
use serde_json::json;

use super::*;

/// Checks arguments. Returns the mistake as a sentence, and the steps that the check took.
fn checked(schema: &Value, value: &Value) -> (Option<String>, u32) {
    let (schema, mut budget) = (Schema::read(&schema.to_string()), Budget { steps: STEPS_MAX });
    let mistake = schema.check(value, &mut budget).err().map(|mistake| mistake.to_string());
    (mistake, STEPS_MAX - budget.steps)
}

#[test]
fn mistakes_are_found_wherever_they_are() {
    let many: Vec<Value> = (0..5000).map(|number| json!(format!("{number:x}"))).collect();
    let nested = json!({ "items": { "items": { "properties": { "a": { "type": "null" } } } } });
    for (schema, good, bad, mistake) in [
        (json!({ "type": ["string", "null"] }), json!(null), json!(1), " must be of type string or null."),
        (json!({ "type": "integer" }), json!(2.0), json!(2.5), " must be of type integer."),
        (json!({ "type": "number" }), json!(2), json!("2"), " must be of type number."),
        (json!({ "type": ["string", "date"] }), json!(1), json!(null), ""),
        (json!({ "enum": [1, 2.5, "a"] }), json!(1.0), json!(true), r#" must be one of 1, 2.5, "a"."#),
        (
            json!({ "enum": [[1, 2], { "a": 0 }] }),
            json!([1.0, 2]),
            json!([2, 1]),
            " must be one of [1,2], {\"a\":0}.",
        ),
        (json!({ "enum": [1, 2], "const": 2 }), json!(2), json!(1), " must be 2."),
        (
            json!({ "const": u64::MAX }),
            json!(u64::MAX),
            json!(u64::MAX - 1),
            " must be 18446744073709551615.",
        ),
        (json!({ "enum": [] }), json!("x"), json!("x"), " must be one of ."),
        (
            json!({ "oneOf": [{ "type": "null" }, { "const": 1 }] }),
            json!(1),
            json!(2),
            " fits none of its schemas.",
        ),
        (json!({ "required": ["a"] }), json!({ "a": 1 }), json!({}), r#" must have "a"."#),
        (
            json!({ "properties": { "b": {}, "a": {} }, "additionalProperties": false }),
            json!({ "a": 1, "b": 2 }),
            json!({ "c": 1 }),
            r#" must not have "c"."#,
        ),
        (nested, json!([[{ "a": null }]]), json!([[], [{}, { "a": 1 }]]), "[1][1].a must be of type null."),
        (
            json!({ "items": { "enum": many } }),
            json!(many),
            json!(["0", "0", "x"]),
            r#"[2] must be one of "0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "a", "b", "c",."#,
        ),
        (json!(true), json!(1), json!(2), ""),
    ] {
        let found = checked(&schema, &bad).0;
        let expected = Some(format!("arguments{mistake}")).filter(|_| !mistake.is_empty());
        assert_eq!(found, expected, "{bad}");
        let (mistake, steps) = checked(&schema, &good);
        assert!(steps < STEPS_MAX, "{steps} steps");
        assert!(mistake.is_none() || schema == json!({ "enum": [] }), "{mistake:?}");
    }
}

/// Schemas and arguments whose check would take longer than anyone waits.
fn hostile_cases() -> Vec<(&'static str, Value, Value)> {
    let names: Vec<String> = (0..5500).map(|number| format!("{number:x}")).collect();
    let structures: Vec<Value> = (0..4000).map(|number| json!([[[number]]])).collect();
    let options: Vec<Value> = names.iter().take(3000).map(|name| json!({ "const": name })).collect();
    vec![
        (
            "a long enum beside another schema",
            json!({ "items": { "anyOf": [{ "enum": names }, { "type": "integer" }] } }),
            json!(vec![1; 30_000]),
        ),
        ("a long list of schemas", json!({ "items": { "oneOf": options } }), json!(vec![&names[2999]; 8000])),
        ("an enum of structures", json!({ "items": { "enum": structures } }), json!(vec![[[[3999]]]; 5000])),
        ("many required fields", json!({ "items": { "required": names } }), {
            let fields: Map<String, Value> = names.iter().map(|name| (name.clone(), json!(0))).collect();
            json!(vec![Value::Object(fields); 5])
        }),
        (
            "many open properties",
            json!({ "items": { "additionalProperties": false, "properties": { "a": {} } } }),
            json!(vec![json!({ "a": 0 }); 60_000]),
        ),
    ]
}

#[test]
fn checks_that_would_take_too_long_end_with_the_budget_and_fit() {
    for (name, schema, value) in hostile_cases() {
        let (schema, mut budget) = (Schema::read(&schema.to_string()), Budget { steps: STEPS_MAX });
        let mistake = schema.check(&value, &mut budget).err().map(|mistake| mistake.to_string());
        assert!(budget.is_spent(), "{name}: {} steps are left", budget.steps);
        assert_eq!(mistake, None, "{name}: what is not checked fits");
    }
}

#[test]
fn ordinary_large_arguments_are_checked_completely() {
    let names: Vec<String> = (0..200).map(|number| format!("name{number}")).collect();
    let schema = json!({ "properties": { "rows": { "items": {
        "required": ["id", "kind"], "additionalProperties": false,
        "properties": { "id": { "type": "integer" }, "kind": { "enum": names }, "note": { "type": ["string", "null"] } },
    } } } });
    let row = json!({ "id": 1, "kind": "name7", "note": null });
    let mut rows = vec![row; 1000];
    let (mistake, steps) = checked(&schema, &json!({ "rows": rows }));
    assert!(mistake.is_none() && steps < STEPS_MAX / 2, "{mistake:?}, {steps} steps");
    rows.push(json!({ "id": "last", "kind": "name7" }));
    let mistake = checked(&schema, &json!({ "rows": rows })).0;
    assert_eq!(mistake.as_deref(), Some("arguments.rows[1000].id must be of type integer."));
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(json!(null)),
        any::<bool>().prop_map(Value::from),
        (-3i64..3).prop_map(Value::from),
        prop_oneof![
            Just(json!(i64::MAX)),
            Just(json!(u64::MAX)),
            Just(json!(9.223_372_036_854_775e18)),
            Just(json!(-0.0))
        ],
        "[ab]{0,2}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 40, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::btree_map(
                "[ab]|type|enum|const|items|required|properties|anyOf|oneOf",
                inner,
                0..6
            )
            .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn any_schema_can_be_compiled_and_its_steps_are_bounded(schema in value(), value in value(), steps in 1u32..60) {
        let schema = Schema::read(&schema.to_string());
        let mut budget = Budget { steps: STEPS_MAX };
        let whole = schema.check(&value, &mut budget).map_err(|mistake| mistake.to_string());
        prop_assert!(!budget.is_spent());
        let mut small = Budget { steps };
        let cut = schema.check(&value, &mut small).map_err(|mistake| mistake.to_string());
        prop_assert!(if small.is_spent() { cut.is_ok() || cut == whole } else { cut == whole }, "{:?} {:?}", cut, whole);
    }

    #[test]
    fn order_of_values_is_total(one in value(), two in value(), three in value()) {
        let order = |one: &Value, other: &Value| compare(one, other, &mut Budget { steps: u32::MAX });
        prop_assert_eq!(order(&one, &two), order(&two, &one).reverse());
        prop_assert!(order(&one, &one).is_eq());
        if order(&one, &two).is_le() && order(&two, &three).is_le() {
            prop_assert!(order(&one, &three).is_le());
        }
    }
}
