package chat

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// hostile are templates that would read files, never end, overflow the stack or
// take all memory, each with a part of the error that has to come instead.
var hostile = map[string][2]string{
	"long range":        {`{% for i in range(3000000) %}{{ i }}{% endfor %}`, "range of more than"},
	"huge range":        {`{{ range(0, 9223372036854775807, 9223372036854775806) }}`, "too large"},
	"nested loops":      {`{% for a in range(9999) %}{% for b in range(9999) %}{% for c in range(9999) %}{% endfor %}{% endfor %}{% endfor %}`, "steps"},
	"silent loops":      {`{% for a in range(9999) %}{% for b in range(9999) %}{% set x = a %}{% endfor %}{% endfor %}`, "steps"},
	"loop over string":  {`{% set s = 'x' * 100000 %}{% for c in s %}{% endfor %}`, "items"},
	"double string":     {`{% set ns = namespace(s='xx') %}{% for i in range(100) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}`, "bytes"},
	"double with plus":  {`{% set ns = namespace(s='xx') %}{% for i in range(100) %}{% set ns.s = ns.s + ns.s %}{% endfor %}`, "bytes"},
	"repeat":            {`{{ 'x' * 1000000000 }}`, "repeats"},
	"repeat twice":      {`{{ 'x' * 100000 * 100000 }}`, "value of more"},
	"repeat list":       {`{{ [1] * 1000000000 }}`, "repeats"},
	"double list":       {`{% set ns = namespace(s=[1]) %}{% for i in range(100) %}{% set ns.s = ns.s + ns.s %}{% endfor %}`, "bytes"},
	"nest list":         {`{% set ns = namespace(s=[1]) %}{% for i in range(60) %}{% set ns.s = [ns.s, ns.s] %}{% endfor %}{{ ns.s }}`, "bytes"},
	"nest deep":         {`{% set ns = namespace(s=[1]) %}{% for i in range(9999) %}{% set ns.s = [ns.s] %}{% endfor %}{{ ns.s }}`, "deep"},
	"nest dict":         {`{% set ns = namespace(s={}) %}{% for i in range(60) %}{% set ns.s = {'a': ns.s, 'b': ns.s} %}{% endfor %}`, "bytes"},
	"cycle":             {`{% set ns = namespace() %}{% set ns.a = ns %}{{ ns }}`, "namespace into another"},
	"cycle in list":     {`{% set ns = namespace() %}{% set ns.a = [ns] %}{{ ns }}`, "namespace into another"},
	"cycle in call":     {`{% set a = namespace() %}{% set b = namespace(a=a) %}`, "namespace into another"},
	"block set":         {`{% set x = 'xxxxxxxx' %}` + strings.Repeat(`{% set x %}{{ x }}{{ x }}{% endset %}`, 60), "bytes"},
	"macro output":      {`{% macro m(s) %}{{ s }}{{ s }}{{ s }}{{ s }}{% endmacro %}{% set ns = namespace(s='xx') %}{% for i in range(99) %}{% set ns.s = m(ns.s) %}{% endfor %}`, "bytes"},
	"output":            {`{% set s = 'x' * 100000 %}{% for i in range(9999) %}{{ s }}{% endfor %}`, "bytes"},
	"plain text":        {`{% for i in range(19999) %}` + strings.Repeat("x", 30000) + `{% endfor %}`, "bytes"},
	"captured text":     {`{% set y %}{% for i in range(19999) %}` + strings.Repeat("x", 30000) + `{% endfor %}{% endset %}`, "bytes"},
	"replace":           {`{% set s = 'x' * 100000 %}{{ s | replace('x', s) }}`, "value of more"},
	"replace method":    {`{% set s = 'x' * 100000 %}{{ s.replace('x', s) }}`, "value of more"},
	"join":              {`{{ range(9999) | join('x' * 100000) }}`, "value of more"},
	"indent":            {`{{ ('\n' * 100000) | indent(100000) }}`, "indents"},
	"json indent":       {`{{ [[[[[[1]]]]]] | tojson(indent=100000000) }}`, "indents"},
	"split":             {`{{ ('x' * 1000000).split('') }}`, "value of more"},
	"recursive macro":   {`{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}`, "call each other"},
	"recursive pair":    {`{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}{{ a() }}{% endmacro %}{{ a() }}`, "call each other"},
	"recursive value":   {`{% macro f(g) %}{{ g(g) }}{% endmacro %}{{ f(f) }}`, "call each other"},
	"recursive fan":     {`{% macro m(n) %}{% if n > 0 %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(30) }}`, "steps"},
	"recursive default": {`{% macro m(x=m()) %}{% endmacro %}{{ m() }}`, "default value"},
	"recursive alias":   {`{% macro m() %}{{ n() }}{% endmacro %}{% set n = m %}{{ n() }}`, "call each other"},
	"recursive loop":    {`{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}`, "recursive"},
	"include":           {`{% include "SECRET" %}`, "may not"},
	"import":            {`{% import "SECRET" as x %}`, "may not"},
	"from":              {`{% from "SECRET" import x %}`, "may not"},
	"extends":           {`{% extends "SECRET" %}`, "may not"},
	"change message":    {`{% set messages[0].role = "x" %}`, "only a name"},
	"change list":       {`{{ messages.append(1) }}`, "method append"},
	"change dict":       {`{{ messages[0].update({}) }}`, "method update"},
	"go method":         {`{{ [1].Swap(0, 5) }}`, "method Swap"},
	"own names":         {"{% set \x00op = 1 %}", ""},
	"many searches":     {`{% set s = 'a' * 200000 %}{% for i in range(9999) %}{% if (s ~ 'b') in s or s in (s ~ 'b') %}{% endif %}{% endfor %}`, "bytes"},
	"select in list":    {`{% set r = range(9999) %}{% for i in range(999) %}{% set x = r | select('in', r) | list %}{% endfor %}`, "bytes"},
	"json of many":      {`{% set a = range(19999) %}{{ [[[[[[[[a]]]]]]]] | tojson(indent=16) }}`, "bytes"},
	"zero":              {`{{ 1 // 0 }}`, "not a number"},
	"zero modulo":       {`{{ 1 % 0 }}`, "not a number"},
	"many parentheses":  {`{{ ` + strings.Repeat("(", 30000) + `1` + strings.Repeat(")", 30000) + ` }}`, "tokens"},
	"some parentheses":  {`{{ ` + strings.Repeat("(", 900) + `1` + strings.Repeat(")", 900) + ` }}`, ""},
	"lists in lists":    {`{{ ` + strings.Repeat("[", 900) + `1` + strings.Repeat("]", 900) + ` }}`, "nested"},
	"many sums":         {`{{ 1` + strings.Repeat("+1", 30000) + ` }}`, "tokens"},
	"sums":              {`{{ 1` + strings.Repeat("+1", 900) + ` }}`, "nested"},
	"many blocks":       {strings.Repeat(`{%if 1%}`, 3700) + strings.Repeat(`{%endif%}`, 3700), ""},
	"not":               {`{{ ` + strings.Repeat("not ", 10000) + `1 }}`, ""},
	"open call":         {`{{ f(in in in`, ""},
	"open tag":          {`{% set x`, ""},
	"unknown filter":    {`{{ 'x' | urlize(1000000000) }}`, "filter 'urlize' not found"},
	"center":            {`{{ 'x' | center(1000000000) }}`, "centers in 1000000000"},
	"center method":     {`{{ 'x'.center(1000000000) }}`, "centers in 1000000000"},
	"center often":      {`{% set ns = namespace(s='x') %}{% for i in range(19999) %}{% for j in range(99) %}{% set ns.s = ns.s ~ 'x' | center(1000) %}{% endfor %}{% endfor %}`, "bytes"},
	"format width":      {`{{ '%1000000000d' | format(1) }}`, "more than 1000"},
	"format digits":     {`{{ '%.1000000000f' | format(1) }}`, "more than 1000"},
	"format huge width": {`{{ '%99999999999999999999999d' | format(1) }}`, "more than 1000"},
	"format operator":   {`{{ '%1000000000s' % 'x' }}`, "more than 1000"},
	"format many":       {`{% set p = '%1000d' * 9999 %}{% set ns = namespace(n=0) %}{% for i in range(99) %}{{ p % i }}{% endfor %}`, "no value"},
	"format twice":      {`{% set s = 'x' * 400000 %}{{ '%s%s%s%s' | format(s, s, s, s) }}`, "value of more"},
	"format doubling":   {`{% set ns = namespace(s='xx') %}{% for i in range(99) %}{% set ns.s = '%s%s' % (ns.s, ns.s) %}{% endfor %}`, "bytes"},
	"filter tag":        {`{% set s = 'x' * 100000 %}{% filter replace('x', s) %}{{ s }}{% endfilter %}`, "value of more"},
	"filter tag output": {`{% filter upper %}{% for i in range(19999) %}` + strings.Repeat("x", 30000) + `{% endfor %}{% endfilter %}`, "bytes"},
	"filter tags":       {strings.Repeat(`{% filter replace('x', 'xxxx') %}`, 40) + "x" + strings.Repeat(`{% endfilter %}`, 40), "bytes"},
	"with":              {`{% set s = 'x' * 100000 %}{% for i in range(9999) %}{% with a = [s, s] %}{{ a }}{% endwith %}{% endfor %}`, "bytes"},
	"with tags":         {strings.Repeat(`{% with %}`, 2500) + strings.Repeat(`{% endwith %}`, 2500), ""},
	"call recursion":    {`{% macro m() %}{{ caller is defined }}{% call m() %}{% endcall %}{% endmacro %}{{ m() }}`, "call each other"},
	"caller recursion":  {`{% macro m(f) %}{{ f() }}{% endmacro %}{% macro n() %}{% set ns = namespace(f=caller) %}{{ caller() }}{% endmacro %}{% call n() %}{% call n() %}{{ n2() }}{% endcall %}{% endcall %}`, "not callable"},
	"call fan":          {`{% macro m(n) %}{% if n > 0 %}{% call m(n - 1) %}y{% endcall %}{% call m(n - 1) %}x{{ caller is defined }}{% endcall %}{% endif %}{% endmacro %}{{ m(28) }}`, "steps"},
	"caller of caller":  {`{% macro m(f) %}{{ caller(caller) }}{% endmacro %}{% call(f) m() %}{{ f(f) }}{% endcall %}`, "call each other"},
	"call default":      {`{% macro m() %}{{ caller() }}{% endmacro %}{% call(x=m()) m() %}{% endcall %}`, "default value"},
	"call output":       {`{% macro m() %}{{ caller() }}{{ caller() }}{% endmacro %}{% set s = 'x' * 100000 %}{% for i in range(999) %}{% call m() %}{{ s }}{% endcall %}{% endfor %}`, "bytes"},
	"power tower":       {`{{ 9 ** 9 ** 9 ** 9 ** 9 }}`, "not a number"},
	"set many":          {`{% set a, b = range(9999) %}`, "2 names to 9999 values"},
	"set messages":      {`{% set messages[0].role, b = 1, 2 %}`, "only a name"},
	"unknown tag":       {`{% block x %}{{ self.x() }}{% endblock %}`, "'block' not found"},
	"refuse":            {`{{ raise_exception('no ' ~ 'way') }}`, "the template refuses: no way"},
}

// hang is longer than any template takes, also on a busy machine with the race
// detector on.
const hang = 30 * time.Second

// TestHostile checks that no template does what it should not, and that each ends
// soon with an error that tells why. The bound on time is not among them: it
// is the last resort.
func TestHostile(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("SECRET TEXT"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range hostile {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			start := time.Now()
			out := ""
			tpl, err := Parse(strings.ReplaceAll(test[0], "SECRET", secret))
			if err == nil {
				tpl.limit = hang
				out, err = tpl.Render(context.Background(), sample)
			}
			took := time.Since(start)
			runtime.ReadMemStats(&after)
			if strings.Contains(out, "SECRET TEXT") {
				t.Error("it read a file")
			}
			if test[1] != "" && (err == nil || !strings.Contains(err.Error(), test[1])) {
				t.Errorf("got %.200q, %v, want an error with %q", out, err, test[1])
			}
			if err != nil && len(err.Error()) > 500 {
				t.Errorf("the error has %d bytes", len(err.Error()))
			}
			if took > hang/2 {
				t.Errorf("it took %v", took)
			}
			if made := after.TotalAlloc - before.TotalAlloc; made > 1<<30 {
				t.Errorf("it allocated %d MB", made>>20)
			}
		})
	}
}

// TestTooLarge checks the bound on the source.
func TestTooLarge(t *testing.T) {
	if _, err := Parse(strings.Repeat("x", maxSource)); err != nil {
		t.Error(err)
	}
	if _, err := Parse(strings.Repeat("x", maxSource+1)); err == nil || !strings.Contains(err.Error(), "65537 bytes") {
		t.Errorf("got %v", err)
	}
}

// TestUnchanged checks that a rendering leaves the conversation alone and that the
// next one starts anew.
func TestUnchanged(t *testing.T) {
	tpl, err := Parse(`{% if seen is defined %}again{% endif %}{% set seen = 1 %}{% set messages = messages[1:] %}{{ messages[0].role }}`)
	if err != nil {
		t.Fatal(err)
	}
	c := Conversation{Messages: []Message{{Role: "system", Content: "a"}, {Role: "user", Content: "b"}}}
	want := fmt.Sprint(c)
	for range 2 {
		if got, err := tpl.Render(context.Background(), c); err != nil || got != "user" {
			t.Errorf("got %q, %v", got, err)
		}
	}
	if fmt.Sprint(c) != want {
		t.Errorf("the conversation is now %v", c)
	}
}

// TestTimeLimit checks the bound on time, and that it stops what it is told to.
func TestTimeLimit(t *testing.T) {
	tpl, err := Parse(hostile["silent loops"][0])
	if err != nil {
		t.Fatal(err)
	}
	tpl.limit = time.Millisecond
	if _, err = tpl.Render(context.Background(), sample); err == nil || !strings.Contains(err.Error(), "takes longer than 1ms") {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	tpl.limit = hang
	if _, err = tpl.Render(ctx, sample); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}
