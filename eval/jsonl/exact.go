package jsonl

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
)

// Decode reads a JSON object into the struct that v points to, and objects in it
// into structs in that. Names of fields are compared as they are written, as the
// official Python code does: encoding/json takes Pred for pred, and the last of the
// two where a line has both. A name that differs from a wanted one in capitals only,
// which is not there, is an error. Every field of the structs has a json tag.
func Decode(b []byte, v any) error { return decode(b, reflect.ValueOf(v).Elem(), "") }

// decode reads one value; path is its field, for errors.
func decode(b []byte, v reflect.Value, path string) error {
	switch {
	case v.Kind() == reflect.Struct && !reads(v):
		return decodeObject(b, v, path)
	case v.Kind() == reflect.Pointer && v.Type().Elem().Kind() == reflect.Struct && string(b) != "null":
		v.Set(reflect.New(v.Type().Elem()))
		return decode(b, v.Elem(), path)
	case v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Struct && !reads(v):
		return decodeList(b, v, path)
	}
	err := json.Unmarshal(b, v.Addr().Interface())
	if wrong := new(json.UnmarshalTypeError); errors.As(err, &wrong) && wrong.Field == "" {
		wrong.Field = path
	}
	return err
}

// reads reports whether a value reads JSON itself.
func reads(v reflect.Value) bool {
	_, ok := v.Addr().Interface().(json.Unmarshaler)
	return ok
}

// decodeObject reads an object; null is one without fields.
func decodeObject(b []byte, v reflect.Value, path string) error {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(b, &fields); err != nil {
		if wrong := new(json.UnmarshalTypeError); errors.As(err, &wrong) {
			wrong.Field = path
		}
		return err
	}
	for i := range v.NumField() {
		name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		if name == "" || name == "-" {
			continue
		}
		raw, ok := fields[name]
		if !ok {
			if err := almost(fields, name); err != nil {
				return err
			}
			continue
		}
		if err := decode(raw, v.Field(i), strings.TrimPrefix(path+"."+name, ".")); err != nil {
			return err
		}
	}
	return nil
}

// almost reports a field that differs from name in capitals only.
func almost(fields map[string]json.RawMessage, name string) error {
	for other := range fields {
		if strings.EqualFold(other, name) {
			return fmt.Errorf("field %s, want %s: names are compared with their capitals, as the official code does", other, name)
		}
	}
	return nil
}

// decodeList reads a list of objects; null is none.
func decodeList(b []byte, v reflect.Value, path string) error {
	var list []json.RawMessage
	if err := json.Unmarshal(b, &list); err != nil {
		if wrong := new(json.UnmarshalTypeError); errors.As(err, &wrong) {
			wrong.Field = path
		}
		return err
	}
	if v.SetZero(); list == nil {
		return nil
	}
	v.Set(reflect.MakeSlice(v.Type(), len(list), len(list)))
	for i, raw := range list {
		if err := decode(raw, v.Index(i), path); err != nil {
			return err
		}
	}
	return nil
}
