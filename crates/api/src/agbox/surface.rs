//! The frozen surface: every name, number and type of the protocol, as text.

use std::fmt::Write as _;

use prost::Message as _;
use prost_types::{
    DescriptorProto, EnumDescriptorProto, FieldDescriptorProto, FileDescriptorSet, MessageOptions,
    ServiceDescriptorProto,
    field_descriptor_proto::{Label, Type},
};

use super::DESCRIPTOR;

const FROZEN: &str = include_str!("../../../../proto/agbox/v1/surface.txt");

/// Clients that are out there know these numbers. If this fails after a change of the protocol
/// file, the change breaks them, unless all it does is add.
#[test]
fn the_protocol_is_the_frozen_one() {
    let files = FileDescriptorSet::decode(DESCRIPTOR).unwrap();
    let file = files.file.iter().find(|file| file.package() == "agbox.v1").unwrap();
    let mut text = format!("package {}\n", file.package());
    file.service.iter().for_each(|service| write_service(&mut text, service));
    file.enum_type.iter().for_each(|list| write_enum(&mut text, list));
    file.message_type.iter().for_each(|message| write_message(&mut text, message));
    assert_eq!(text, FROZEN, "this is the surface as it is now:\n{text}");
}

fn write_service(text: &mut String, service: &ServiceDescriptorProto) {
    writeln!(text, "\nservice {}", service.name()).unwrap();
    for method in &service.method {
        let stream = if method.server_streaming() { "stream " } else { "" };
        let (from, to) = (short(method.input_type()), short(method.output_type()));
        writeln!(text, "  {}({from}) -> {stream}{to}", method.name()).unwrap();
    }
}

fn write_enum(text: &mut String, list: &EnumDescriptorProto) {
    writeln!(text, "\nenum {}", list.name()).unwrap();
    for value in &list.value {
        writeln!(text, "  {} = {}", value.name(), value.number()).unwrap();
    }
}

fn write_message(text: &mut String, message: &DescriptorProto) {
    writeln!(text, "\nmessage {}", message.name()).unwrap();
    for field in &message.field {
        let kind = kind_of(message, field);
        let oneof = match field.oneof_index {
            Some(_) if field.proto3_optional() => " optional".to_owned(),
            Some(index) => {
                let oneof = &message.oneof_decl[usize::try_from(index).unwrap()];
                format!(" oneof {}", oneof.name())
            }
            None => String::new(),
        };
        writeln!(text, "  {} = {} {kind}{oneof}", field.name(), field.number()).unwrap();
    }
}

fn kind_of(message: &DescriptorProto, field: &FieldDescriptorProto) -> String {
    let name = if matches!(field.r#type(), Type::Message | Type::Enum) {
        short(field.type_name()).to_owned()
    } else {
        field.r#type().as_str_name().trim_start_matches("TYPE_").to_lowercase()
    };
    let entry = message.nested_type.iter().find(|nested| {
        nested.name() == name && nested.options.as_ref().is_some_and(MessageOptions::map_entry)
    });
    match entry {
        Some(entry) => {
            let kinds: Vec<_> = entry.field.iter().map(|field| kind_of(entry, field)).collect();
            format!("map<{}>", kinds.join(", "))
        }
        None if field.label() == Label::Repeated => format!("repeated {name}"),
        None => name,
    }
}

fn short(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or(name)
}
