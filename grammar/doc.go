// Package grammar constrains what a model writes to the JSON values that a schema allows. It
// knows bytes and token ids, and nothing of models or sampling.
//
// [Compile] makes a [Grammar] of a JSON schema. [NewVocabulary] makes a trie of the bytes that
// each token stands for, once for a tokenizer. [Vocabulary.Bind] joins the two, and each answer
// has a [Matcher]: its Mask says which tokens may come next, its Accept takes the one that was
// sampled.
//
// The rules:
//   - A Grammar is a pushdown automaton over bytes. What is between brackets is pushed; strings
//     and numbers are finite automata (lexemes) that are made as they are visited.
//   - No dead ends: what has no value is removed when a schema is compiled, and every vocabulary
//     has a token for every byte that JSON can need. So every state has a token.
//   - A schema is honoured exactly or refused with the path of what is not.
//     docs/structured-output.md says what is.
//   - A schema is hostile input: compiling it takes bounded time and memory.
//
// Start reading at machine.go, which is the automaton; mask.go is how masks are fast.
package grammar
