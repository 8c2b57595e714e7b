//! Texts to expressions, by recursive descent: `or` binds least, then `and`, `not`, comparisons, sums, products, signs.

use super::function::FUNCTIONS;
use super::token::{Token, tokens};
use super::{AGGREGATES_MAX, At, DEPTH_MAX, Expression, FIELDS_MAX, Field, NODES_MAX, Operator, TEXT_MAX, Tables};
use crate::aggregate::{AGGREGATES, Aggregate, Kind};
use crate::error::Fault;
use crate::json::Step;
use crate::nearest::hint;

/// Largest number of a topic level or of an element of an array.
const INDEX_MAX: f64 = 65_535.0;

/// Names of the fields of a message.
const FIELDS: [&str; 8] = ["topic", "payload", "properties", "content_type", "qos", "retain", "client", "time"];

/// Reads `text`; the fields and aggregates that it refers to are added to `tables`. The words of a fault say what to write instead.
pub(crate) fn parse(text: &str, tables: &mut Tables) -> Result<Expression, Fault> {
    if text.len() > TEXT_MAX {
        return Err(Fault::new(0, format!("an expression has at most {TEXT_MAX} bytes")));
    }
    let mut parser = Parser { tokens: tokens(text)?, next: 0, nodes: 0, depth: 0, inside: None, tables };
    let expression = parser.or()?;
    if *parser.peek() != Token::End {
        return Err(parser.fault(format!("{} is not expected here", parser.shown())));
    }
    Ok(expression)
}

struct Parser<'a> {
    tokens: Vec<(usize, Token)>,
    next: usize,
    nodes: usize,
    depth: usize,
    /// The aggregate whose arguments are being read.
    inside: Option<&'static str>,
    tables: &'a mut Tables,
}

type Parsed = Result<Expression, Fault>;

impl Parser<'_> {
    fn peek(&self) -> &Token {
        self.tokens.get(self.next).map_or(&Token::End, |(_, token)| token)
    }

    fn at(&self) -> usize {
        self.tokens.get(self.next).or_else(|| self.tokens.last()).map_or(0, |(at, _)| *at)
    }

    fn fault(&self, what: impl Into<String>) -> Fault {
        Fault::new(self.at(), what)
    }

    /// The next word as it is shown in messages.
    fn shown(&self) -> String {
        match self.peek() {
            Token::Name(name) => name.clone(),
            Token::Number(number) => number.to_string(),
            Token::Text(text) => format!("{text:?}"),
            Token::Sign(sign) => (*sign).to_owned(),
            Token::End => "the end".to_owned(),
        }
    }

    fn take(&mut self, sign: &str) -> bool {
        let taken = matches!(self.peek(), Token::Sign(found) if *found == sign);
        self.next += usize::from(taken);
        taken
    }

    fn take_name(&mut self, name: &str) -> bool {
        let taken = matches!(self.peek(), Token::Name(found) if found == name);
        self.next += usize::from(taken);
        taken
    }

    fn expect(&mut self, sign: &str) -> Result<(), Fault> {
        if self.take(sign) { Ok(()) } else { Err(self.fault(format!("{sign} is missing before {}", self.shown()))) }
    }

    fn node(&mut self, expression: Expression) -> Parsed {
        self.nodes += 1;
        if self.nodes > NODES_MAX {
            return Err(self.fault(format!("an expression has at most {NODES_MAX} parts")));
        }
        Ok(expression)
    }

    fn nested(&mut self, inner: impl FnOnce(&mut Self) -> Parsed) -> Parsed {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(self.fault(format!("an expression is nested at most {DEPTH_MAX} deep")));
        }
        let parsed = inner(self);
        self.depth -= 1;
        parsed
    }

    /// A chain of operators of one rank: `next` reads the operands between them.
    fn chain(
        &mut self,
        operator: impl Fn(&mut Self) -> Option<Operator>,
        next: impl Fn(&mut Self) -> Parsed,
    ) -> Parsed {
        let mut left = next(self)?;
        let mut length = 0;
        while let Some(operator) = operator(self) {
            // Each link of the chain is one level of the tree.
            length += 1;
            if self.depth + length > DEPTH_MAX {
                return Err(self.fault(format!("at most {DEPTH_MAX} operators stand in a row")));
            }
            let right = next(self)?;
            left = self.node(Expression::Binary(operator, Box::new(left), Box::new(right)))?;
        }
        Ok(left)
    }

    fn or(&mut self) -> Parsed {
        self.nested(|parser| {
            parser.chain(
                |parser| (parser.take("||") || parser.take_name("or")).then_some(Operator::Or),
                |parser| {
                    parser.chain(
                        |parser| (parser.take("&&") || parser.take_name("and")).then_some(Operator::And),
                        Self::not,
                    )
                },
            )
        })
    }

    fn not(&mut self) -> Parsed {
        if self.take("!") || self.take_name("not") {
            let inner = self.nested(Self::not)?;
            return self.node(Expression::Not(Box::new(inner)));
        }
        self.comparison()
    }

    fn comparison(&mut self) -> Parsed {
        let left = self.sum()?;
        let Some(operator) = self.comparator() else { return Ok(left) };
        let right = self.sum()?;
        if self.comparator().is_some() {
            self.next -= 1;
            return Err(self.fault("comparisons do not follow each other: join two by and"));
        }
        self.node(Expression::Binary(operator, Box::new(left), Box::new(right)))
    }

    fn comparator(&mut self) -> Option<Operator> {
        const COMPARATORS: [(&str, Operator); 7] = [
            ("==", Operator::Equal),
            ("=", Operator::Equal),
            ("!=", Operator::NotEqual),
            ("<=", Operator::LessOrEqual),
            ("<", Operator::Less),
            (">=", Operator::GreaterOrEqual),
            (">", Operator::Greater),
        ];
        COMPARATORS.into_iter().find(|(sign, _)| self.take(sign)).map(|(_, operator)| operator)
    }

    fn sum(&mut self) -> Parsed {
        self.chain(
            |parser| {
                let add = parser.take("+").then_some(Operator::Add);
                add.or_else(|| parser.take("-").then_some(Operator::Subtract))
            },
            |parser| {
                parser.chain(
                    |parser| {
                        let multiply = parser.take("*").then_some(Operator::Multiply);
                        let divide = multiply.or_else(|| parser.take("/").then_some(Operator::Divide));
                        divide.or_else(|| parser.take("%").then_some(Operator::Remainder))
                    },
                    Self::sign,
                )
            },
        )
    }

    fn sign(&mut self) -> Parsed {
        if self.take("-") {
            let inner = self.nested(Self::sign)?;
            return self.node(Expression::Negative(Box::new(inner)));
        }
        self.operand()
    }

    fn operand(&mut self) -> Parsed {
        let at = self.at();
        let token = self.peek().clone();
        self.next += usize::from(token != Token::End);
        match token {
            Token::Number(number) => self.node(Expression::Number(number)),
            Token::Text(text) => self.node(Expression::Text(text.into())),
            Token::Sign("(") => {
                let inner = self.or()?;
                self.expect(")")?;
                Ok(inner)
            }
            Token::Name(name) => self.name(at, &name),
            Token::Sign(sign) => Err(Fault::new(at, format!("{sign} stands where a value is expected"))),
            Token::End => Err(Fault::new(at, "the expression ends where a value is expected")),
        }
    }

    fn name(&mut self, at: usize, name: &str) -> Parsed {
        if self.take("(") {
            return self.call(at, name);
        }
        let field = match name {
            "true" => return self.node(Expression::Bool(true)),
            "false" => return self.node(Expression::Bool(false)),
            "null" => return self.node(Expression::Null),
            "topic" if self.take("[") => {
                let level = self.index("a topic level, counted from 0: topic[1]")?;
                Field::Level(level)
            }
            "topic" => Field::Topic,
            "payload" => Field::Payload(self.path()?),
            "properties" => Field::Property(self.property()?),
            "content_type" => Field::ContentType,
            "qos" => Field::Qos,
            "retain" => Field::Retain,
            "client" => Field::Client,
            "time" => Field::Time,
            _ => {
                let near = hint(name, FIELDS);
                let near = if near.is_empty() { "; a field of the payload is written payload.NAME" } else { &near };
                return Err(Fault::new(at, format!("there is no {name}{near}")));
            }
        };
        let fields = &mut self.tables.fields;
        let number = fields.iter().position(|known| *known == field).unwrap_or_else(|| {
            fields.push(field);
            fields.len() - 1
        });
        if fields.len() > FIELDS_MAX {
            return Err(Fault::new(at, format!("a rule looks at no more than {FIELDS_MAX} different fields")));
        }
        self.node(Expression::Field(number, At(at)))
    }

    /// The number in square brackets whose first has been taken.
    fn index(&mut self, wanted: &str) -> Result<usize, Fault> {
        let Token::Number(number) = *self.peek() else { return Err(self.fault(format!("here stands {wanted}"))) };
        if number.fract() != 0.0 || number > INDEX_MAX {
            return Err(self.fault(format!("{number} is not {wanted}")));
        }
        self.next += 1;
        self.expect("]")?;
        Ok(crate::value::to_u64(number).and_then(|number| usize::try_from(number).ok()).unwrap_or_default())
    }

    fn path(&mut self) -> Result<Vec<Step>, Fault> {
        let mut path = Vec::new();
        loop {
            if path.len() > DEPTH_MAX {
                return Err(self.fault(format!("a path into a payload has at most {DEPTH_MAX} steps")));
            }
            if self.take(".") {
                let Token::Name(name) = self.peek().clone() else {
                    return Err(self.fault("behind the dot stands a name; others are written payload[\"a name\"]"));
                };
                self.next += 1;
                path.push(Step::Key(name.into()));
            } else if self.take("[") {
                if let Token::Text(key) = self.peek().clone() {
                    self.next += 1;
                    self.expect("]")?;
                    path.push(Step::Key(key.into()));
                } else {
                    path.push(Step::Index(self.index("the number of an element, or a name in quotes")?));
                }
            } else {
                return Ok(path);
            }
        }
    }

    fn property(&mut self) -> Result<String, Fault> {
        let dotted = self.take(".");
        let bracket = !dotted && self.take("[");
        let name = match self.peek().clone() {
            Token::Name(name) if dotted => name,
            Token::Text(name) if bracket => name,
            Token::Name(_) | Token::Text(_) | Token::Number(_) | Token::Sign(_) | Token::End => {
                return Err(self.fault("a user property is written properties.NAME or properties[\"a name\"]"));
            }
        };
        self.next += 1;
        if bracket {
            self.expect("]")?;
        }
        Ok(name)
    }

    fn arguments(&mut self) -> Result<Vec<Expression>, Fault> {
        let mut arguments = Vec::new();
        if self.take(")") {
            return Ok(arguments);
        }
        loop {
            arguments.push(self.or()?);
            if self.take(")") {
                return Ok(arguments);
            }
            if !self.take(",") {
                return Err(self.fault(format!(") or , is missing before {}", self.shown())));
            }
        }
    }

    fn call(&mut self, at: usize, name: &str) -> Parsed {
        if let Some(&(name, kind, least, most)) = AGGREGATES.iter().find(|(known, ..)| *known == name) {
            return self.aggregate(at, name, kind, (least, most));
        }
        let Some(&(_, function, least, most)) = FUNCTIONS.iter().find(|(known, ..)| *known == name) else {
            let known = FUNCTIONS.iter().map(|(name, ..)| *name).chain(AGGREGATES.iter().map(|(name, ..)| *name));
            return Err(Fault::new(at, format!("there is no function {name}{}", hint(name, known))));
        };
        let arguments = self.arguments()?;
        if !(least..=most).contains(&arguments.len()) {
            return Err(wrong_count(at, name, (least, most), arguments.len()));
        }
        self.node(Expression::Call(function, arguments, At(at)))
    }

    fn aggregate(&mut self, at: usize, name: &'static str, kind: Kind, bounds: (usize, usize)) -> Parsed {
        if let Some(outer) = self.inside {
            return Err(Fault::new(at, format!("{name} stands within {outer}: an aggregate takes values of messages")));
        }
        self.inside = Some(name);
        let arguments = self.arguments();
        self.inside = None;
        let mut arguments = arguments?;
        if !(bounds.0..=bounds.1).contains(&arguments.len()) {
            return Err(wrong_count(at, name, bounds, arguments.len()));
        }
        let mut parameter = 0.0;
        if kind == Kind::Percentile {
            parameter = 50.0;
            if let Some(second) = arguments.drain(1..).next() {
                let Expression::Number(number @ 0.0..=100.0) = second else {
                    return Err(Fault::new(at, "the second argument of percentile is a number from 0 to 100"));
                };
                parameter = number;
            }
        }
        let aggregate = Aggregate { kind, argument: arguments.pop(), parameter };
        let aggregates = &mut self.tables.aggregates;
        let number = aggregates.iter().position(|known| *known == aggregate).unwrap_or_else(|| {
            aggregates.push(aggregate);
            aggregates.len() - 1
        });
        if aggregates.len() > AGGREGATES_MAX {
            return Err(Fault::new(at, format!("a rule has at most {AGGREGATES_MAX} different aggregates")));
        }
        self.node(Expression::Aggregate(number, At(at)))
    }
}

fn wrong_count(at: usize, name: &str, (least, most): (usize, usize), count: usize) -> Fault {
    let wanted = match (least, most) {
        (same, most) if same == most => format!("{least}"),
        _ => format!("{least} to {most}"),
    };
    Fault::new(at, format!("{name} takes {wanted} arguments, not {count}"))
}
