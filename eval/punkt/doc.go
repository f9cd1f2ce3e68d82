// Package punkt cuts English text into sentences as NLTK's sent_tokenize does,
// character by character.
//
// A full stop may end a sentence, an abbreviation, or both. Punkt (Kiss and Strunk,
// Unsupervised Multilingual Sentence Boundary Detection, Computational Linguistics
// 32, 2006) decides by what it learned of a large text: abbreviations, words that
// often begin sentences, pairs of words with a full stop between them, and in which
// case a word was seen where. What it learned of English is in english.txt.gz
// (NOTICE), which scripts/punkt-english.py makes.
//
// The steps, each a file:
//
//  1. Marks (mark.go): every full stop, question or exclamation mark that another
//     word or mark of punctuation follows, with the word around it.
//  2. Words (word.go): such a context is taken apart into words and punctuation.
//  3. Decisions (decide.go): by the word alone, then by the word that follows.
//  4. Sentences (sentence.go): cuts, and the closing quotes and brackets that belong
//     to the sentence before a cut.
//
// All of them are linear in the text.
package punkt
