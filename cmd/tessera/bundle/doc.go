// Package bundle is the verb support-bundle: everything that somebody needs to see who was not there, in
// one archive.
//
// What cannot be had is told in the archive and stops nothing. Secrets are not asked for, and what pods
// carry in their environment is left out.
package bundle
