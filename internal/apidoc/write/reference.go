package main

import (
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// reference is the content of the pages, in their order.
type reference struct {
	Services []service
	Messages []message // that services use, beside their requests and answers
	Enums    []enum
}

type service struct {
	Name    string
	Comment []string // paragraphs
	Calls   []call
}

type call struct {
	Name    string
	Path    string // of the POST
	Comment []string
	Streams bool // there are many answers
	Request message
	Answer  message
}

type message struct {
	Name    string
	Comment []string
	Fields  []field
}

type field struct {
	Name    string // in JSON
	Number  int
	Before  string // of the type: "list of", "map of string to"
	Type    string
	Link    bool // Type has a section in the reference
	Comment string
}

type enum struct {
	Name    string
	Comment []string
	Values  []value
}

type value struct {
	Name    string
	Number  int
	Comment string
}

// readReference collects the services with everything that they use.
func readReference(files *protoregistry.Files, services []string) (*reference, error) {
	r := &reader{own: map[protoreflect.FullName]bool{}, found: map[protoreflect.FullName]protoreflect.Descriptor{}}
	ref := &reference{}
	var described []protoreflect.ServiceDescriptor
	for _, name := range services {
		d, err := files.FindDescriptorByName(protoreflect.FullName(name))
		if err != nil {
			return nil, err
		}
		s, ok := d.(protoreflect.ServiceDescriptor)
		if !ok {
			return nil, fmt.Errorf("%s is no service", name)
		}
		described = append(described, s)
		for i := range s.Methods().Len() {
			m := s.Methods().Get(i)
			r.own[m.Input().FullName()], r.own[m.Output().FullName()] = true, true
		}
	}
	for _, s := range described {
		ref.Services = append(ref.Services, r.service(s))
	}
	for name := range r.own {
		delete(r.found, name)
	}
	for len(r.queue) > 0 {
		d := r.queue[0]
		r.queue = r.queue[1:]
		if m, ok := d.(protoreflect.MessageDescriptor); ok && !r.own[m.FullName()] {
			ref.Messages = append(ref.Messages, r.message(m))
		}
		if e, ok := d.(protoreflect.EnumDescriptor); ok {
			ref.Enums = append(ref.Enums, enumOf(e))
		}
	}
	slices.SortFunc(ref.Messages, func(a, b message) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(ref.Enums, func(a, b enum) int { return strings.Compare(a.Name, b.Name) })
	return ref, nil
}

// reader follows the types of fields.
type reader struct {
	own   map[protoreflect.FullName]bool // requests and answers, which stand with their calls
	found map[protoreflect.FullName]protoreflect.Descriptor
	queue []protoreflect.Descriptor // found and not read yet
}

func (r *reader) service(d protoreflect.ServiceDescriptor) service {
	s := service{Name: string(d.Name()), Comment: paragraphs(d)}
	for i := range d.Methods().Len() {
		m := d.Methods().Get(i)
		s.Calls = append(s.Calls, call{
			Name: string(m.Name()), Path: "/" + string(d.FullName()) + "/" + string(m.Name()), Comment: paragraphs(m),
			Streams: m.IsStreamingServer(), Request: r.message(m.Input()), Answer: r.message(m.Output()),
		})
	}
	return s
}

func (r *reader) message(d protoreflect.MessageDescriptor) message {
	m := message{Name: string(d.Name()), Comment: paragraphs(d)}
	for i := range d.Fields().Len() {
		f := d.Fields().Get(i)
		shown := field{Name: f.JSONName(), Number: int(f.Number()), Comment: strings.Join(paragraphs(f), " ")}
		of := f
		switch {
		case f.IsMap():
			shown.Before = "map of " + f.MapKey().Kind().String() + " to"
			of = f.MapValue()
		case f.IsList():
			shown.Before = "list of"
		}
		shown.Type, shown.Link = r.typeOf(of)
		m.Fields = append(m.Fields, shown)
	}
	return m
}

// typeOf returns the name of a field's type, and whether it has a section.
func (r *reader) typeOf(f protoreflect.FieldDescriptor) (name string, link bool) {
	var d protoreflect.Descriptor
	switch f.Kind() {
	case protoreflect.MessageKind:
		d = f.Message()
	case protoreflect.EnumKind:
		d = f.Enum()
	default:
		return f.Kind().String(), false
	}
	if r.found[d.FullName()] == nil {
		r.found[d.FullName()] = d
		r.queue = append(r.queue, d)
	}
	return string(d.Name()), true
}

func enumOf(d protoreflect.EnumDescriptor) enum {
	e := enum{Name: string(d.Name()), Comment: paragraphs(d)}
	for i := range d.Values().Len() {
		v := d.Values().Get(i)
		e.Values = append(e.Values, value{string(v.Name()), int(v.Number()), strings.Join(paragraphs(v), " ")})
	}
	return e
}

// paragraphs returns the comments before and behind a declaration, without line breaks.
func paragraphs(d protoreflect.Descriptor) []string {
	at := d.ParentFile().SourceLocations().ByDescriptor(d)
	var all []string
	for _, text := range []string{at.LeadingComments, at.TrailingComments} {
		for p := range strings.SplitSeq(text, "\n\n") {
			if p = strings.Join(strings.Fields(p), " "); p != "" {
				all = append(all, p)
			}
		}
	}
	return all
}
