"""A transformer and a bag of words, with different views of texts, read each other's latents."""

import random

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence

import sheafed

TOPICS = """rain sun storm cloud wind snow heat frost fog thunder
bread soup salt oven butter spoon onion sauce cake recipe
train ticket hotel map harbour flight luggage bridge museum tour""".splitlines()
IDS = {word: k for k, word in enumerate(" ".join(TOPICS).split(), start=1)}  # 0 is padding


def write(seed):
    """Return 210 texts, of 3 to 14 words of their topic and 9 of all, and the topics."""
    draw, labels = random.Random(seed), [0, 1, 2] * 70
    texts = [[TOPICS[label]] * draw.randint(3, 14) + TOPICS * 3 for label in labels]
    return [" ".join(draw.choice(topic.split()) for topic in text) for text in texts], labels


def tokenize(rows):
    tokens = pad_sequence([torch.tensor([IDS[w] for w in text.split()]) for text, _ in rows], True)
    return {"tokens": tokens, "mask": tokens != 0}, torch.tensor([label for _, label in rows])


def count_words(texts):
    return torch.tensor([[float(text.split().count(word)) for word in IDS] for text in texts])


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(len(IDS) + 1, 32)
        self.layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0, batch_first=True)

    def forward(self, tokens, mask):  # named as the keys of the inputs
        hidden = self.layer(self.embedding(tokens), src_key_padding_mask=~mask) * mask[..., None]
        return hidden.sum(1) / mask.sum(1, keepdim=True)


def main(epochs=10):
    torch.manual_seed(0)
    texts, (shared, _) = {"train": write(0), "test": write(1)}, write(2)
    counts = {split: (count_words(given), labels) for split, (given, labels) in texts.items()}
    bag = nn.Sequential(nn.Linear(len(IDS), 48), nn.ReLU(), nn.Linear(48, 24))
    agents = [
        sheafed.Agent("reader", Transformer(), nn.Linear(32, 3), data=texts, collate_fn=tokenize),
        sheafed.Agent("counter", bag, nn.Linear(24, 3), data=counts),
    ]
    pilots = {"reader": tokenize([(text, 0) for text in shared])[0], "counter": count_words(shared)}
    method = sheafed.SheafFRL(distillation=sheafed.Distillation())
    return sheafed.train(agents, [("reader", "counter")], method, pilots, epochs=epochs)


if __name__ == "__main__":
    print(main().history.evaluation)
