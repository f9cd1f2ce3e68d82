package main

import "errors"

type chatTemplate struct{}

type message struct{ role, content string }

func newTemplate(*openModel) (*chatTemplate, error) { return nil, errors.New("not yet") }

func (t *chatTemplate) encode([]message) ([]int32, error) { return nil, nil }

func conversation(system, text string) []message { return nil }
