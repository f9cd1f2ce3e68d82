package longbench

import (
	"fmt"
	"slices"
	"strings"
)

// Measure is how answers of a data set are compared with references.
type Measure string

// The measures.
const (
	F1             Measure = "qa_f1"
	Rouge          Measure = "rouge_l"
	Classification Measure = "classification"
	Counting       Measure = "count"
	Retrieval      Measure = "retrieval"
	Code           Measure = "code_sim"
	F1Chinese      Measure = "qa_f1_zh"
	RougeChinese   Measure = "rouge_zh"
)

// Dataset is one of the data sets of version 1.
type Dataset struct {
	Name      string
	Category  string
	Measure   Measure
	NewTokens int  // that an answer may have, by the official configuration
	FirstLine bool // only the first line of an answer counts
	Bare      bool // the prompt is not wrapped in a chat template
	E         bool // is part of LongBench-E
	Chinese   bool
}

// datasets are in the order of the official tables.
var datasets = []Dataset{
	{Name: "narrativeqa", Category: "single-document QA", Measure: F1, NewTokens: 128},
	{Name: "qasper", Category: "single-document QA", Measure: F1, NewTokens: 128, E: true},
	{Name: "multifieldqa_en", Category: "single-document QA", Measure: F1, NewTokens: 64, E: true},
	{Name: "multifieldqa_zh", Category: "single-document QA", Measure: F1Chinese, NewTokens: 64, Chinese: true},
	{Name: "hotpotqa", Category: "multi-document QA", Measure: F1, NewTokens: 32, E: true},
	{Name: "2wikimqa", Category: "multi-document QA", Measure: F1, NewTokens: 32, E: true},
	{Name: "musique", Category: "multi-document QA", Measure: F1, NewTokens: 32},
	{Name: "dureader", Category: "multi-document QA", Measure: RougeChinese, NewTokens: 128, Chinese: true},
	{Name: "gov_report", Category: "summarization", Measure: Rouge, NewTokens: 512, E: true},
	{Name: "qmsum", Category: "summarization", Measure: Rouge, NewTokens: 512},
	{Name: "multi_news", Category: "summarization", Measure: Rouge, NewTokens: 512, E: true},
	{Name: "vcsum", Category: "summarization", Measure: RougeChinese, NewTokens: 512, Chinese: true},
	{Name: "trec", Category: "few-shot", Measure: Classification, NewTokens: 64, FirstLine: true, Bare: true, E: true},
	{Name: "triviaqa", Category: "few-shot", Measure: F1, NewTokens: 32, FirstLine: true, Bare: true, E: true},
	{Name: "samsum", Category: "few-shot", Measure: Rouge, NewTokens: 128, FirstLine: true, Bare: true, E: true},
	{Name: "lsht", Category: "few-shot", Measure: Classification, NewTokens: 64, FirstLine: true, Bare: true, Chinese: true},
	{Name: "passage_count", Category: "synthetic", Measure: Counting, NewTokens: 32, E: true},
	{Name: "passage_retrieval_en", Category: "synthetic", Measure: Retrieval, NewTokens: 32, E: true},
	{Name: "passage_retrieval_zh", Category: "synthetic", Measure: Retrieval, NewTokens: 32, Chinese: true},
	{Name: "lcc", Category: "code", Measure: Code, NewTokens: 64, Bare: true, E: true},
	{Name: "repobench-p", Category: "code", Measure: Code, NewTokens: 64, Bare: true, E: true},
}

// Datasets lists the 21 data sets.
func Datasets() []Dataset { return slices.Clone(datasets) }

// Names lists the names of the data sets.
func Names() []string {
	names := make([]string, len(datasets))
	for i, d := range datasets {
		names[i] = d.Name
	}
	return names
}

// Find is the data set of that name.
func Find(name string) (Dataset, error) {
	if i := slices.IndexFunc(datasets, func(d Dataset) bool { return d.Name == name }); i >= 0 {
		return datasets[i], nil
	}
	return Dataset{}, fmt.Errorf("longbench: no data set is called %q; want one of %s", name, strings.Join(Names(), ", "))
}

// Pick reads a list of names with commas between them, where all stands for every
// data set, en for the sixteen in English, and e for those of LongBench-E.
func Pick(list string) ([]Dataset, error) {
	var picked []Dataset
	for name := range strings.SplitSeq(list, ",") {
		name = strings.TrimSpace(name)
		group := slices.DeleteFunc(Datasets(), func(d Dataset) bool {
			return name != d.Name && name != "all" && (name != "en" || d.Chinese) && (name != "e" || !d.E)
		})
		if len(group) == 0 {
			_, err := Find(name)
			return nil, err
		}
		for _, d := range group {
			if !slices.Contains(picked, d) {
				picked = append(picked, d)
			}
		}
	}
	return picked, nil
}

// Splits reports whether the data set is scored over words that a [Splitter] makes of
// its Chinese.
func (d Dataset) Splits() bool { return d.Measure == F1Chinese || d.Measure == RougeChinese }

// Scorable reports whether the data set can be scored with these options.
func (d Dataset) Scorable(o Options) bool { return !d.Splits() || o.Words != nil }
