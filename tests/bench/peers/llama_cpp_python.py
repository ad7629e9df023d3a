# SPDX-License-Identifier: Apache-2.0
import sys

from llama_cpp import Llama

path, prompt = sys.argv[1:]
for piece in Llama(path, n_threads=2, verbose=False).create_completion(prompt, max_tokens=1, stream=True):
    print(piece["choices"][0]["text"], flush=True)
