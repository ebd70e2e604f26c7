//! Statements that are put together at run time, for both databases.

/// A statement and its parameters, `$1` the first.
#[derive(Clone, Debug, Default)]
pub(super) struct Statement {
    pub(super) sql: String,
    pub(super) values: Vec<Value>,
}

/// A parameter.
#[derive(Clone, Debug)]
pub(super) enum Value {
    Int(i64),
    Text(String),
    Ints(Vec<i64>),
}

impl Statement {
    pub(super) fn push(&mut self, sql: &str) -> &mut Self {
        self.sql.push_str(sql);
        self
    }

    pub(super) fn bind(&mut self, value: Value) -> &mut Self {
        self.values.push(value);
        let number = self.values.len();
        self.push(&format!("${number}"))
    }

    pub(super) fn int(&mut self, value: i64) -> &mut Self {
        self.bind(Value::Int(value))
    }

    pub(super) fn text(&mut self, text: &str) -> &mut Self {
        self.bind(Value::Text(text.to_owned()))
    }
}
